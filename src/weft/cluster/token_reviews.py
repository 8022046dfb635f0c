"""Checks tokens on a cluster, for the CA and for xDS, with TokenReviews of the API server. Input: a token. Output: a
Caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from weft.ca.signer import CaUnavailable
from weft.ca.tokens import Caller, TokenReason, TokenRefused
from weft.kube.client import Client
from weft.kube.token_review import Reason, Reviewed, ReviewRefused, ReviewUnavailable, review

AUDIENCE = "istio-ca"
# Any client may send an invalid token. These limits leave some of the API client's concurrency for the Lease and the
# watches. A review that would have to wait too long is rejected at once.
AT_ONCE, MOST_WAITING = 16, 1_000

_REASONS = {
    Reason.NOT_AUTHENTICATED: TokenReason.SIGNATURE,
    Reason.WRONG_AUDIENCE: TokenReason.AUDIENCE,
    Reason.NOT_A_SERVICE_ACCOUNT: TokenReason.SUBJECT,
    Reason.NOT_POD_BOUND: TokenReason.NOT_BOUND,
}
_WORDS = {
    "has expired": TokenReason.EXPIRED,
    "has been invalidated": TokenReason.REVOKED,  # the pod or the account was deleted
}


class TokenReviews:
    """Checks tokens with TokenReviews. `lives`: a function that returns whether a pod of this UID exists, as far as
    this process knows. It is needed because the API server caches reviews for some seconds, and would accept the
    token of a deleted pod during that time."""

    def __init__(
        self,
        client: Client,
        audience: str = AUDIENCE,
        *,
        lives: Callable[[str], bool] | None = None,
        at_once: int = AT_ONCE,
        waiting: int = MOST_WAITING,
    ) -> None:
        self._client = client
        self._most_waiting = waiting
        self._audience = audience
        self._lives = lives
        self._places = asyncio.Semaphore(at_once)
        self._waiting = 0

    async def check(self, token: str) -> Caller:
        """Return the caller that the token identifies. Raises TokenRefused, or CaUnavailable while the API server
        cannot be reached."""
        reviewed = await self._review(token)
        if self._lives is not None and not self._lives(reviewed.pod_uid):
            # The pod may be so new that the watch has not reported it. Then the client should retry; a rejection would
            # be final.
            raise CaUnavailable(f"pod {reviewed.namespace}/{reviewed.pod} is not known to this control plane")
        return Caller(reviewed.namespace, reviewed.service_account, reviewed.pod, reviewed.pod_uid)

    async def _review(self, token: str) -> Reviewed:
        if not token:
            raise TokenRefused(TokenReason.MISSING, "no token was sent")
        if self._waiting >= self._most_waiting:
            raise CaUnavailable("too many tokens are waiting for review; try again")
        self._waiting += 1
        try:
            async with self._places:
                return await review(self._client, token, (self._audience,))
        except ReviewRefused as refused:
            whose = refused.reviewed
            caller = Caller(whose.namespace, whose.service_account) if whose is not None else None
            raise TokenRefused(_reason(refused), str(refused), caller) from refused
        except ReviewUnavailable as unavailable:
            raise CaUnavailable(unavailable.problem.what) from unavailable
        finally:
            self._waiting -= 1


def _reason(refused: ReviewRefused) -> TokenReason:
    """Return the reason why the API server rejected a token (`refused`). For a token that is not authentic, the server
    gives details only as text; for a known text, a more specific reason is returned."""
    if refused.reason is Reason.NOT_AUTHENTICATED:
        for words, reason in _WORDS.items():
            if words in refused.detail:
                return reason
    return _REASONS[refused.reason]
