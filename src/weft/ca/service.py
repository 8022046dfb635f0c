"""Issues certificates. Input: a token and a CSR. Output: a certificate for the token's identity, or SigningRefused.

Rule: the CSR has no say in who the caller is. Every rejection is counted, and logged at most once a
minute with its reason, never with a token or a CSR.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

from weft.ca.authority import Authority
from weft.ca.certificates import Issued
from weft.ca.csr import CsrRefused
from weft.ca.error import AuthorityError
from weft.ca.signer import CaUnavailable, ServiceReason, SigningRefused
from weft.ca.tokens import Caller, TokenChecker, TokenRefused
from weft.model.identity import Identity

log = logging.getLogger("weft.ca")

# Signing takes half a millisecond, so it runs on the event loop: no queue, no thread, no certificate for a caller that
# has disconnected. One pod with many requests would delay all others, hence a rate limit per pod. A pod needs one
# certificate per day. A burst of ten and one per second after that leave room for restarts and for lifetimes of
# seconds, and cost 0.05 % of a core.
_BURST = 10.0
_PER_SECOND = 1.0
_MOST_CALLERS = 100_000
_REMIND_SECONDS = 60.0
_MOST_TOLD = 1_000


class CertificateService:
    def __init__(
        self, authority: Authority, checker: TokenChecker, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.authority = authority
        self._checker = checker
        self._clock = clock
        self._rate = _Rate(clock)
        self._told: dict[str, float] = {}  # when each message was last logged, so that retries do not fill the log

    async def create(self, token: str, csr: bytes, lifetime: timedelta | None = None) -> Issued:
        """Return a certificate for the token's identity and the key of the CSR. Raises SigningRefused, or CaUnavailable
        if the authority cannot sign. `lifetime`: the requested lifetime; None for the default."""
        caller: Caller | None = None
        try:
            caller = await self._checker.check(token)
            if not self._rate.admit(caller.pod_uid or str(caller)):
                raise SigningRefused(ServiceReason.RATE, "too many certificates for this pod; wait a few seconds")
            identity = Identity(self.authority.trust_domain, caller.namespace, caller.service_account)
            issued = self.authority.sign(csr, identity, lifetime)
        except TokenRefused as refused:
            self._count(refused.reason, refused.caller, refused)
            raise SigningRefused(refused.reason, str(refused)) from refused
        except CsrRefused as refused:
            self._count(refused.reason, caller, refused)
            raise SigningRefused(refused.reason, str(refused)) from refused
        except SigningRefused as refused:
            self._count(refused.reason, caller, refused)
            raise
        except AuthorityError as error:
            self._count(ServiceReason.AUTHORITY, caller, error)
            raise CaUnavailable(error.problem.what) from error
        self.authority.issued += 1
        log.debug("issued a certificate for %s to %s until %s", identity, caller, issued.expires)
        return issued

    def bundles(self) -> AsyncIterator[tuple[str, ...]]:
        return self.authority.bundles()

    def _count(self, reason: str, caller: Caller | None, why: Exception) -> None:
        self.authority.refused[reason] += 1
        words = f"rejected a certificate request of {caller or 'an unknown caller'}: {why} ({reason})"
        now = self._clock()
        if now - self._told.get(words, -_REMIND_SECONDS) >= _REMIND_SECONDS:
            if len(self._told) >= _MOST_TOLD:
                self._told.clear()
            self._told[words] = now
            log.warning("%s", words)


class _Rate:
    """A token bucket for each caller. When there are too many buckets, the full ones are dropped."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # level of each bucket, and the time of that level

    def admit(self, caller: str) -> bool:
        now = self._clock()
        if len(self._buckets) >= _MOST_CALLERS:
            self._buckets = {name: each for name, each in self._buckets.items() if _filled(each, now) < _BURST}
        level = _filled(self._buckets.get(caller, (_BURST, now)), now)
        if level < 1.0:
            return False
        self._buckets[caller] = (level - 1.0, now)
        return True


def _filled(bucket: tuple[float, float], now: float) -> float:
    level, since = bucket
    return min(_BURST, level + (now - since) * _PER_SECOND)
