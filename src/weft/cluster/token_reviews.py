"""How the CA checks tokens on a cluster: it asks the API server whose they are. A token comes in, a Caller leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from weft.ca.signer import CaUnavailable
from weft.ca.tokens import Caller, TokenReason, TokenRefused
from weft.kube.client import Client
from weft.kube.token_review import Reason, Reviewed, ReviewRefused, ReviewUnavailable, review

AUDIENCE = "istio-ca"
# Anybody may show something that is no token. Some of the client's places are left for the Lease and the watches, and
# who would have to wait too long is told so at once.
AT_ONCE, MOST_WAITING = 16, 1_000

_REASONS = {
    Reason.NOT_AUTHENTICATED: TokenReason.SIGNATURE,
    Reason.WRONG_AUDIENCE: TokenReason.AUDIENCE,
    Reason.NOT_A_SERVICE_ACCOUNT: TokenReason.SUBJECT,
    Reason.NOT_POD_BOUND: TokenReason.NOT_BOUND,
}
_WORDS = {
    "has expired": TokenReason.EXPIRED,
    "has been invalidated": TokenReason.REVOKED,  # its pod or its account is gone
}


class TokenReviews:
    """`lives`: whether a pod of this UID is there, as far as this process knows. The API server answers from a cache
    for some seconds, and in that time would take the token of a pod that is gone."""

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
        """Raises TokenRefused; CaUnavailable while the API server cannot be asked."""
        found = await self._review(token)
        if self._lives is not None and not self._lives(found.pod_uid):
            # Also one that is so new that the watch has not told of it: hence no refusal, but another try.
            raise CaUnavailable(
                f"pod {found.namespace}/{found.pod} is not known to this control plane, yet or any more"
            )
        return Caller(found.namespace, found.service_account, found.pod, found.pod_uid)

    async def _review(self, token: str) -> Reviewed:
        if not token:
            raise TokenRefused(TokenReason.MISSING, "no token was shown")
        if self._waiting >= self._most_waiting:
            raise CaUnavailable("too many tokens wait to be reviewed; try again")
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
    """What the API server says in words alone; without them, that it does not believe the token."""
    if refused.reason is Reason.NOT_AUTHENTICATED:
        for words, reason in _WORDS.items():
            if words in refused.detail:
                return reason
    return _REASONS[refused.reason]
