"""The agent's client of the CA: requests certificates, watches the roots, and reconnects.

gRPC's errors are converted to weft's exceptions here. Rule: a response of the CA is accepted only if it fits the
request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import grpc.aio
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from google.protobuf.message import DecodeError

from weft.base.backoff import Backoff
from weft.ca import messages
from weft.ca.certificates import Issued, certificate_pem
from weft.ca.signer import REASON, CaUnavailable, ServiceReason, SigningRefused

log = logging.getLogger("weft.ca")

_TIMEOUT_SECONDS = 10.0
_LONGEST_ANSWER = 1 << 20
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", _LONGEST_ANSWER),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.use_local_subchannel_pool", 1),  # a channel with new roots must not reuse an old connection
)
_CREATE = f"/{messages.CERTIFICATE_SERVICE}/{messages.CREATE}"
_WATCH = f"/{messages.BUNDLE_SERVICE}/{messages.WATCH}"
_REFUSALS = {
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class CertificateClient:
    def __init__(self, target: str, roots: str | None = None, *, server_name: str = "") -> None:
        """`target`: the CA's address, HOST:PORT or `unix:/path`. `roots`: the initial root certificates as PEM, None
        for `unix:/path`. `server_name`: the name in the CA's certificate, if it is not the target's host."""
        if roots is None and not target.startswith("unix:"):
            raise ValueError("a CA on the network needs a root certificate; only a Unix socket needs none")
        self._target = target
        self._server_name = server_name
        self._roots = roots
        self._bundle: tuple[str, ...] = ()
        self._channel = self._open()
        self._watching: Any = None  # the call that watches the roots
        self._closing: set[asyncio.Task[None]] = set()

    async def create(self, token: str, csr: bytes, lifetime: timedelta | None = None) -> Issued:
        seconds = 0 if lifetime is None else max(1, int(lifetime.total_seconds()))
        request = messages.CertificateRequest(csr=csr.decode("ascii", "replace"), validity_duration=seconds)
        call: Any = self._channel.unary_unary(_CREATE)
        try:
            answer = await call(
                request.SerializeToString(),
                metadata=(("authorization", f"Bearer {token}"),),
                timeout=_TIMEOUT_SECONDS,
            )
        except grpc.aio.AioRpcError as error:
            raise _renamed(error, self._target) from error
        except grpc.aio.UsageError as error:  # the channel was closed in the meantime
            raise CaUnavailable(f"cannot send a request to the CA at {self._target}: {error}") from error
        return _issued(answer, csr, time.time())

    async def bundles(self) -> AsyncIterator[tuple[str, ...]]:
        """Yield the roots to trust, as PEM: the current ones first, and all roots again whenever they change. While the
        CA is unavailable, retry without raising."""
        last: tuple[str, ...] = ()
        backoff = Backoff(first=0.2, most=10.0)
        while True:
            call: Any = None
            try:
                call = self._watching = self._channel.unary_stream(_WATCH)(messages.WatchRequest().SerializeToString())
                async for answer in call:
                    bundle = self._bundle = _bundle(answer)
                    backoff.reset()
                    reconnecting = self._trust("".join(bundle))
                    if bundle != last:
                        last = bundle
                        yield bundle
                    if reconnecting:
                        break
                else:
                    await asyncio.sleep(backoff.next())
            except (grpc.aio.AioRpcError, grpc.aio.UsageError, CaUnavailable) as error:
                level = logging.WARNING if backoff.failures == 0 else logging.DEBUG
                what = error.code().name if isinstance(error, grpc.aio.AioRpcError) else error
                log.log(level, "cannot watch the roots of the CA at %s (%s); trying again", self._target, what)
                await asyncio.sleep(backoff.next())
            except asyncio.CancelledError:
                # gRPC also raises this when the call's channel has been replaced.
                if call is None or not call.cancelled() or _is_being_cancelled():
                    raise
            finally:
                if call is not None:
                    call.cancel()

    def trust(self, roots: str) -> None:
        """Replace the initial roots by `roots`: if the CA has rotated to `roots` while it was unreachable, its
        certificate is trusted again. The roots that the CA itself sent last stay trusted until it sends others."""
        if self._trust("".join((*self._bundle, roots))) and self._watching is not None:
            self._watching.cancel()

    async def close(self) -> None:
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self._channel.close()

    def _trust(self, roots: str) -> bool:
        """Trust exactly `roots` from now on, and open a new connection if they have changed; calls on the old
        connection may finish. Return whether a new connection was opened."""
        if self._roots is None or roots == self._roots:
            return False
        self._roots = roots
        before, self._channel = self._channel, self._open()
        task = asyncio.create_task(before.close(_TIMEOUT_SECONDS))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return True

    def _open(self) -> grpc.aio.Channel:
        if self._roots is None:
            return grpc.aio.insecure_channel(self._target, options=_OPTIONS)
        named = (("grpc.ssl_target_name_override", self._server_name),) if self._server_name else ()
        credentials = grpc.ssl_channel_credentials(root_certificates=self._roots.encode())
        return grpc.aio.secure_channel(self._target, credentials, options=(*_OPTIONS, *named))


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _issued(answer: bytes, csr: bytes, now: float) -> Issued:
    """Parse the CA's response `answer`, and return the certificate and its chain without the root. Raises CaUnavailable
    if the response is not a certificate chain, or the certificate is not for the key of `csr`. `now`: the time of the
    response, in Unix time."""
    try:
        pem = "\n".join(messages.CertificateResponse.FromString(answer).cert_chain)
        leaf, *above = x509.load_pem_x509_certificates(pem.encode())
        is_ours = leaf.public_key() == x509.load_pem_x509_csr(csr).public_key()
    except (ValueError, DecodeError, UnsupportedAlgorithm) as error:
        raise CaUnavailable("the CA's answer is not a certificate chain") from error
    if not is_ours:
        raise CaUnavailable("the CA answered with a certificate for another key")
    chain = (leaf, *(each for each in above if each.issuer != each.subject))
    return Issued(
        chain=tuple(certificate_pem(each) for each in chain),
        not_before=leaf.not_valid_before_utc,
        expires=leaf.not_valid_after_utc,
        issued=datetime.fromtimestamp(now, UTC),
    )


def _bundle(answer: bytes) -> tuple[str, ...]:
    try:
        roots = tuple(messages.TrustBundle.FromString(answer).roots)
        for root in roots:
            x509.load_pem_x509_certificate(root.encode())
    except (ValueError, DecodeError, UnsupportedAlgorithm) as error:
        raise CaUnavailable("the CA sent roots that are not certificates") from error
    if not roots:
        raise CaUnavailable("the CA sent an empty bundle")
    return roots


def _renamed(error: grpc.aio.AioRpcError, target: str) -> Exception:
    details = error.details() or error.code().name
    if "CERTIFICATE_VERIFY_FAILED" in details:
        what = f"the certificate of the server at {target} is not signed by a trusted root"
        return CaUnavailable(f"{what}: pass the CA's root with --ca-root")
    if error.code() not in _REFUSALS:
        return CaUnavailable(f"the CA at {target} does not answer: {details} ({error.code().name})")
    trailing: Any = error.trailing_metadata() or ()
    reason = next((str(value) for name, value in trailing if name == REASON), ServiceReason.OTHER)
    return SigningRefused(reason, details)
