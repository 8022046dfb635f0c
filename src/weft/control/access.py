"""Authenticates callers of the control plane by the service account in a certificate or a token of the mesh.

Input: a connection's certificate and a token. Output: a Principal, or a rejection. `direct_streams.py` and
`relays.py` decide what a principal may see. Rule: if a caller sends both a certificate and a token, they must name
the same account.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from weft.ca.signer import CaUnavailable
from weft.ca.tokens import TokenChecker, TokenReason, TokenRefused
from weft.model.identity import Identity
from weft.xds.access import Unauthenticated, Undecided


class Principal(msgspec.Struct, frozen=True):
    namespace: str
    service_account: str
    pod: str = ""
    pod_uid: str = ""  # UID of the pod that the token is bound to
    is_agent: bool = False  # the caller has a certificate of a node agent's account
    only_asks: bool = False  # the token is not bound to a pod: the caller may read debug pages, and is not a proxy

    def __str__(self) -> str:
        pod = f" (pod {self.pod})" if self.pod else ""
        return f"{self.namespace}/{self.service_account}{pod}"


class Access:
    """Implements `weft.xds.access.Authenticate`. `identity_of` returns the identity in a peer's verified certificate,
    or None if the peer has no certificate. `agents` are the accounts of node agents, as (namespace, name)."""

    def __init__(
        self,
        trust_domain: str,
        checker: TokenChecker,
        identity_of: Callable[[str], Identity | None],
        agents: frozenset[tuple[str, str]] = frozenset(),
    ) -> None:
        self._trust_domain, self._checker = trust_domain, checker
        self._identity_of, self._agents = identity_of, agents

    async def __call__(self, peer: str, token: str) -> Principal:
        """Return the principal of the caller at `peer` with `token`. Raises Unauthenticated or Undecided."""
        identity = self._identity_of(peer)
        if identity is not None and identity.trust_domain != self._trust_domain:
            raise Unauthenticated(f"{identity} is in another trust domain than {self._trust_domain}")
        if not token:
            if identity is None:
                raise Unauthenticated("a certificate of the mesh or a bearer token is required")
            return Principal(identity.namespace, identity.service_account)
        try:
            caller = await self._checker.check(token)
        except TokenRefused as refused:
            if refused.reason is not TokenReason.NOT_BOUND or refused.caller is None or identity is not None:
                raise Unauthenticated(str(refused)) from refused
            return Principal(refused.caller.namespace, refused.caller.service_account, only_asks=True)
        except CaUnavailable as unavailable:
            raise Undecided(str(unavailable)) from unavailable
        account = (caller.namespace, caller.service_account)
        if identity is not None and (identity.namespace, identity.service_account) != account:
            raise Unauthenticated(f"the certificate is for {identity}, but the token is for {caller}")
        is_agent = identity is not None and account in self._agents
        return Principal(*account, caller.pod, caller.pod_uid, is_agent)
