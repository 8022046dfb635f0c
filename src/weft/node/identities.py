"""The certificate of one workload over time: read the token, generate a key, request a certificate, and repeat
before the certificate expires.

Input: a `Bearer` with a function that returns the workload's token. Output: a `Certified` for each new certificate.
Rules: a key is used for one certificate and is sent only to the workload's own Envoy; a failed renewal keeps the
current certificate; a failure is reported with its reason, its start, and the expiry of the current certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import lru_cache

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes

from weft.base.backoff import Backoff
from weft.ca.certificates import Issued
from weft.ca.signer import CaUnavailable, Signer, SigningRefused
from weft.model.identity import Identity
from weft.node.key import Key, KeyKind
from weft.node.status import IdentityStatus, clock_text

log = logging.getLogger("weft.node.identities")

TokenSource = Callable[[], Awaitable[str]]  # raises OSError or ValueError if there is no token
Clock = Callable[[], float]  # Unix time

LIFETIME = timedelta(hours=24)
RENEW_AT = 0.8  # fraction of a certificate's lifetime
_RENEW_SPREAD = 0.02  # random, up or down: certificates signed together are not all renewed together
_CHANGED_SPREAD = 0.1  # fraction of the remaining lifetime, limited by the next line
_MOST_CHANGED_SPREAD = 60.0  # seconds in which all workloads of a machine renew after a root rotation
_ANSWER_TIMEOUT = 15.0  # seconds for one certificate request
_FIRST_DELAY, _MOST_DELAY = 0.2, 30.0  # seconds between attempts
_LOOK = 15.0  # seconds between checks of the wall clock: it jumps when a suspended machine resumes
_REMIND = 300.0  # seconds between two equal log lines


class Bearer(msgspec.Struct, frozen=True, kw_only=True):
    """A workload that needs a certificate. `name`: NAMESPACE/POD. `identity`: the one that the certificate must have.
    `token`: returns the token for the CA. `key`: the kind of key to generate. `uid`: the pod's UID, needed if a pod's
    name can be used again before the first pod of that name has ended; else ""."""

    name: str  # NAMESPACE/POD
    identity: Identity
    token: TokenSource
    key: KeyKind = KeyKind.P256
    uid: str = ""  # needed if a pod's name can be used again before the first pod of that name has ended

    @property
    def workload(self) -> str:
        """The key of this workload on its machine: the UID, or the name if there is no UID."""
        return self.uid or self.name


class Certified(msgspec.Struct, frozen=True):
    """A certificate and its private key. Its repr does not contain the key. `chain`: PEM, the workload's own
    certificate first; `leaf`: the same certificate, parsed. `obtained`: when it was issued, in Unix time."""

    chain: tuple[str, ...]  # PEM, the leaf first
    key: Key
    leaf: x509.Certificate
    obtained: float  # Unix time

    @property
    def serial(self) -> str:
        return f"{self.leaf.serial_number:x}"

    @property
    def not_before(self) -> float:
        return self.leaf.not_valid_before_utc.timestamp()

    @property
    def not_after(self) -> float:
        return self.leaf.not_valid_after_utc.timestamp()


class KeptIdentity:
    """Gets and renews the certificate of one workload (`bearer`) from `signer`. `publish` is called with each new
    certificate, `changed` whenever the status changes. `lifetime`: the lifetime to request. `before`: the certificate
    that the previous agent had for the workload; it is used as long as it is valid and leads to the current roots."""

    def __init__(
        self,
        bearer: Bearer,
        signer: Signer,
        *,
        publish: Callable[[Certified], None],
        changed: Callable[[], None] = lambda: None,
        lifetime: timedelta = LIFETIME,
        clock: Clock = time.time,
        look: float = _LOOK,
        most_delay: float = _MOST_DELAY,
        before: Certified | None = None,
    ) -> None:
        self.bearer = bearer
        self._before = before
        self._signer, self._publish, self._changed = signer, publish, changed
        self._lifetime, self._clock, self._look = lifetime, clock, look
        # A certificate that lives for seconds must be retried more often than every 30 s.
        self._most_delay = max(1.0, min(most_delay, lifetime.total_seconds() / 20))
        self._certified: Certified | None = None
        self._bundle: tuple[str, ...] = ()
        self._renewal = 0.0
        self._renewals = -1
        self._failing_since = self._reminded = 0.0
        self._error = ""
        self._was_expired = False
        self._woken = asyncio.Event()

    @property
    def status(self) -> IdentityStatus:
        current = self._certified
        return IdentityStatus(
            workload=self.bearer.name,
            identity=str(self.bearer.identity),
            serial=current.serial if current else "",
            not_before=current.not_before if current else 0.0,
            not_after=current.not_after if current else 0.0,
            renewal=self._renewal,
            renewals=max(0, self._renewals),
            roots=tuple(map(fingerprint, self._bundle)),
            failing_since=self._failing_since,
            error=self._error,
        )

    async def run(self) -> None:
        """Get certificates until cancelled. While waiting for the next renewal, check the wall clock regularly: timers
        stop while a machine is suspended."""
        backoff = Backoff(first=_FIRST_DELAY, most=self._most_delay)
        while True:
            try:
                certified = self._previous_certificate() or await self._obtain()
            except (SigningRefused, CaUnavailable, OSError, ValueError) as error:
                await self._failed(str(error) or type(error).__name__, backoff.next())
            except Exception as error:
                # An unexpected error must not end the loop: the next attempt may succeed.
                log.exception("%s: cannot get a certificate, because of an unexpected error", self.bearer.name)
                await self._failed(repr(error), backoff.next())
            else:
                backoff.reset()
                self._succeeded(certified)
                while not self._is_due(now := self._clock()):
                    await self._wait(max(0.01, min(self._look, self._renewal - now)))

    def trust(self, bundle: tuple[str, ...]) -> None:
        """Set the roots to trust (`bundle`), the signing root first. A certificate that leads to none of these roots is
        replaced at once. If the signing root has changed, the certificate is replaced soon, so that the old root can be
        removed."""
        before, self._bundle = self._bundle, bundle
        current = self._certified
        if before != bundle and before and bundle and current is not None:
            now, left = self._clock(), current.not_after - self._clock()
            if not leads_to(current.chain, bundle):
                self._renewal = now
            elif bundle[0] != before[0]:
                spread = min(_MOST_CHANGED_SPREAD, max(0.0, left) * _CHANGED_SPREAD)
                self._renewal = min(self._renewal, now + random.uniform(0.0, spread))  # noqa: S311 - spreads load
        self._woken.set()
        self._changed()

    def hurry(self) -> None:
        """Retry a failed request now: its cause, such as a missing token, may be resolved."""
        if self._error:
            self._woken.set()

    def _previous_certificate(self) -> Certified | None:
        """Return the previous agent's certificate, on the first call only, if it is valid now and leads to the current
        roots; else None."""
        before, self._before = self._before, None
        now = self._clock()
        if before is None or not before.not_before <= now < before.not_after:
            return None
        return None if self._bundle and not leads_to(before.chain, self._bundle) else before

    async def _obtain(self) -> Certified:
        bearer = self.bearer
        key = Key(bearer.key) if bearer.key is KeyKind.P256 else await asyncio.to_thread(Key, bearer.key)
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT):
                token = await bearer.token()
                issued = await self._signer.create(token, key.request(bearer.identity), self._lifetime)
        except TimeoutError:
            raise CaUnavailable(f"no response within {_ANSWER_TIMEOUT:.0f} s") from None
        return certified(issued, key, bearer.identity, self._clock())

    def _succeeded(self, fresh: Certified) -> None:
        now = self._clock()
        self._certified = fresh
        self._renewals += 1
        # A certificate's not-before lies in the past, for machines whose clock is late. Its lifetime counts from when
        # it was obtained.
        share = RENEW_AT + random.uniform(-_RENEW_SPREAD, _RENEW_SPREAD)  # noqa: S311 - spreads load
        begun = min(now, fresh.obtained)
        self._renewal = begun + (fresh.not_after - begun) * share
        failed_since, self._failing_since, self._error, self._was_expired = self._failing_since, 0.0, "", False
        self._publish(fresh)
        if failed_since:
            log.info("%s: has a new certificate, after %.0f s of failures", self.bearer.name, now - failed_since)
        log.debug("%s: certificate %s is valid until %s", self.bearer.name, fresh.serial, clock_text(fresh.not_after))
        self._changed()

    async def _failed(self, why: str, delay: float) -> None:
        """Record and log the failure with its reason (`why`), then wait `delay` seconds. The wait does not use the wall
        clock: a clock that is set back must not prolong it by hours."""
        now = self._clock()
        first = not self._failing_since
        if first:
            self._failing_since = now
        is_expired = self._certified is not None and now >= self._certified.not_after
        # Log the first failure, the expiry of the certificate, and a reminder every `_REMIND` seconds.
        must_log = first or is_expired != self._was_expired or not 0 <= now - self._reminded < _REMIND
        self._renewal, self._error, self._was_expired = now + delay, why, is_expired
        if must_log:
            self._reminded = now
            level = logging.ERROR if self._certified is None or is_expired else logging.WARNING
            words = (self.bearer.name, self.bearer.identity, self.status.trouble(now), delay)
            log.log(level, "%s (%s): %s; retrying in %.1f s", *words)
        self._changed()
        await self._wait(delay)

    def _is_due(self, now: float) -> bool:
        """Return whether the certificate must be renewed now. That is also the case if the clock was set back to before
        its not-before: peers would reject it."""
        current = self._certified
        return now >= self._renewal or (current is not None and now < current.not_before)

    async def _wait(self, seconds: float) -> None:
        """Wait this long, or until `trust` or `hurry` wakes the loop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()


def certified(issued: Issued, key: Key, identity: Identity, now: float) -> Certified:
    """Check the certificate that the CA issued, and return it with its key. Raises ValueError if it is for another key
    or identity, or not valid now."""
    leaf = x509.load_pem_x509_certificate(issued.chain[0].encode()) if issued.chain else None
    if leaf is None or not key.is_for(leaf):
        raise ValueError("the CA returned a certificate for another key")
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except x509.ExtensionNotFound:
        uris = []
    if uris != [str(identity)]:
        raise ValueError(f"the CA returned a certificate for {', '.join(uris) or 'no identity'}, not for {identity}")
    fresh = Certified(issued.chain, key, leaf, now)
    if not fresh.not_before <= now < fresh.not_after:
        text = f"{clock_text(fresh.not_before)} to {clock_text(fresh.not_after)}"
        raise ValueError(
            f"the CA returned a certificate that is valid only from {text}: compare the clocks of both machines"
        )
    return fresh


def leads_to(chain: Sequence[str], bundle: Sequence[str]) -> bool:
    """Return whether one of the roots in `bundle` has signed the chain's last certificate, or is that certificate."""
    last = x509.load_pem_x509_certificate(chain[-1].encode())
    return any(_is_issued_by(last, root) for root in bundle)


@lru_cache(maxsize=64)  # every status of every workload has those of the same few roots
def fingerprint(pem: str) -> str:
    try:
        return x509.load_pem_x509_certificate(pem.encode()).fingerprint(hashes.SHA256()).hex(":")
    except ValueError:
        return "unreadable"


def _is_issued_by(certificate: x509.Certificate, root: str) -> bool:
    try:
        issuer = x509.load_pem_x509_certificate(root.encode())
        if issuer == certificate:
            return True
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
