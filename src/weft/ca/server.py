"""The CA's gRPC server: TLS on TCP, or a Unix socket. It decodes requests and passes them to the service.

Rule: an invalid request makes only its own call fail, and its client gets the reason of the rejection, nothing more.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from weft.ca import messages
from weft.ca.csr import LONGEST_CSR, CsrReason
from weft.ca.error import AuthorityError
from weft.ca.jose import LONGEST_TOKEN
from weft.ca.service import CertificateService
from weft.ca.serving import ServingCertificate
from weft.ca.signer import REASON, CaUnavailable, ServiceReason, SigningRefused
from weft.ca.tokens import TokenReason

log = logging.getLogger("weft.ca")

_LONGEST_REQUEST = LONGEST_CSR + 16 * 1024  # Istio's agents add metadata
_MOST_WATCHERS = 10_000
_MOST_OF_ONE_HOST = 100  # an agent has one; watches need no token, so one host must not use up all
_LONGEST_LIFETIME = 10 * 365 * 86_400  # seconds; more would overflow a timedelta. The authority's limit is lower
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", _LONGEST_REQUEST),
    ("grpc.max_metadata_size", LONGEST_TOKEN + 8 * 1024),
    ("grpc.absolute_max_metadata_size", LONGEST_TOKEN + 16 * 1024),
    ("grpc.max_concurrent_streams", 256),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.so_reuseport", 0),
)
_BEARER = "bearer "

Context = grpc.aio.ServicerContext[bytes, bytes]


class CaServer:
    def __init__(
        self,
        service: CertificateService,
        *,
        names: tuple[str, ...] = (),
        host_of: Callable[[str], str] | None = None,
    ) -> None:
        """`names`: additional names for the server's own certificate. `host_of`: a function that returns the
        client's host for a gRPC peer string, needed behind a proxy; None: the host in the peer string is used."""
        self._service = service
        self._names = names
        self._host_of = host_of or _host
        self._servers: list[grpc.aio.Server] = []
        self._renewing: list[asyncio.Task[None]] = []
        self._watchers: Counter[str] = Counter()  # by host

    async def listen(self, address: str, credentials: grpc.ServerCredentials | None = None) -> str:
        """Serve on `address`, and return it with the actual port. A server on `host:port` always uses TLS:
        `credentials`, or, if these are None, a certificate of the authority itself. A server on `unix:/path` uses
        no TLS; only the owner of the file can connect. Raises AuthorityError."""
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers(self.handlers())
        try:
            if address.startswith("unix:"):
                umask = os.umask(0o177)  # other users must not be able to open the socket at any time
                try:
                    server.add_insecure_port(address)
                finally:
                    os.umask(umask)
                bound = address
            else:
                host = address.rpartition(":")[0]
                port = server.add_secure_port(address, credentials or self._own_credentials(host))
                bound = f"{host}:{port}"
        except (RuntimeError, OSError) as error:
            await server.stop(None)
            raise AuthorityError(
                f"cannot serve the CA on {address}: the address is in use, or the address or directory does not exist",
                "choose another address",
            ) from error
        await server.start()
        self._servers.append(server)
        return bound

    async def close(self, grace: float | None = None) -> None:
        for task in self._renewing:
            task.cancel()
        await asyncio.gather(*self._renewing, return_exceptions=True)
        await asyncio.gather(*(server.stop(grace) for server in self._servers))
        self._servers.clear()
        self._renewing.clear()

    def _own_credentials(self, host: str) -> grpc.ServerCredentials:
        bare = host.strip("[]")
        own = () if bare in ("", "0.0.0.0", "::") else (bare,)
        serving = ServingCertificate(self._service.authority, (*own, *self._names))
        self._renewing.append(asyncio.create_task(serving.run(), name="ca-serving-certificate"))
        return serving.credentials()

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Return the gRPC handlers of both services, for this server or another one."""
        # No deserializers: requests are parsed where their errors can be returned.
        return (
            grpc.method_handlers_generic_handler(
                messages.CERTIFICATE_SERVICE, {messages.CREATE: grpc.unary_unary_rpc_method_handler(self._create)}
            ),
            grpc.method_handlers_generic_handler(
                messages.BUNDLE_SERVICE, {messages.WATCH: grpc.unary_stream_rpc_method_handler(self._watch)}
            ),
        )

    async def _create(self, payload: bytes, context: Context) -> bytes:
        try:
            request = messages.CertificateRequest.FromString(payload)
        except DecodeError:
            return await _refuse(
                context, SigningRefused(ServiceReason.REQUEST, "the request is not an IstioCertificateRequest")
            )
        wanted = request.validity_duration  # 0: no lifetime requested
        lifetime = timedelta(seconds=min(wanted, _LONGEST_LIFETIME)) if wanted >= 0 else timedelta(0)
        try:
            issued = await self._service.create(
                _token(context), request.csr.encode(), None if wanted == 0 else lifetime
            )
        except SigningRefused as refused:
            return await _refuse(context, refused)
        except CaUnavailable as unavailable:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(unavailable))
        except Exception:
            log.exception("the CA could not answer a request; other requests are not affected")
            await context.abort(grpc.StatusCode.INTERNAL, "internal error of the CA; see its log")
        # The last element contains all roots: Istio's agents trust exactly that element, and ztunnel splits it.
        roots = "".join(self._service.authority.bundle())
        answer: bytes = messages.CertificateResponse(cert_chain=[*issued.chain, roots]).SerializeToString()
        return answer

    async def _watch(self, _payload: bytes, context: Context) -> AsyncIterator[bytes]:
        """Send the roots, and again whenever they change. No token is needed: roots are public, and an agent that
        has lost its token must still get new roots."""
        host = self._host_of(context.peer())
        if self._watchers[host] >= _MOST_OF_ONE_HOST or self._watchers.total() >= _MOST_WATCHERS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many clients watch the roots")
        self._watchers[host] += 1
        try:
            async for bundle in self._service.bundles():
                yield messages.TrustBundle(
                    trust_domain=self._service.authority.trust_domain, roots=bundle
                ).SerializeToString()
        finally:
            self._watchers[host] -= 1
            if not self._watchers[host]:
                del self._watchers[host]


_CODES: dict[str, grpc.StatusCode] = {
    **dict.fromkeys(TokenReason, grpc.StatusCode.UNAUTHENTICATED),
    **dict.fromkeys(CsrReason, grpc.StatusCode.INVALID_ARGUMENT),
    ServiceReason.REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    ServiceReason.RATE: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


async def _refuse(context: Context, refused: SigningRefused) -> bytes:
    code = _CODES.get(refused.reason, grpc.StatusCode.PERMISSION_DENIED)
    await context.abort(code, str(refused), ((REASON, str(refused.reason)),))


def _host(peer: str) -> str:
    """Return the host of a gRPC peer string such as `ipv4:10.0.0.1:40000`: the string without the port. Return ""
    for Unix sockets: all their clients count as one host."""
    return peer.rpartition(":")[0] if peer.startswith(("ipv4:", "ipv6:")) else ""


def _token(context: Context) -> str:
    """Return the bearer token of a call; "" if the call has none, or has several, which would be ambiguous."""
    metadata: Any = context.invocation_metadata() or ()
    values = [value for name, value in metadata if name == "authorization" and isinstance(value, str)]
    tokens = [value[len(_BEARER) :].strip() for value in values if value[: len(_BEARER)].lower() == _BEARER]
    return tokens[0] if len(tokens) == 1 else ""
