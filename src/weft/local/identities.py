"""The identities of the pods of one mesh: its CA, the tokens that kubelet would issue on a cluster, and the agent that
keeps the certificate of every pod.

A pod is added when its network exists, before its proxy starts, and removed after its last process has ended. Rule: a
token is bound to one pod and is invalid once that pod has been removed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from weft.base.problem import Problem, Severity
from weft.ca.admin import AdminSocket
from weft.ca.authority import Authority, Terms
from weft.ca.service import CertificateService
from weft.ca.signed_tokens import AUDIENCE, TokenIssuer
from weft.ca.status import AuthorityStatus
from weft.ca.tokens import Caller
from weft.local.pod import PodPlan
from weft.model.identity import Identity
from weft.model.names import where_of
from weft.model.proxy import PROXY_GID, PROXY_UID
from weft.netns.namespace import NetworkNamespace
from weft.node.agent import Agent
from weft.node.door import Doorway
from weft.node.identities import LIFETIME, Bearer
from weft.node.status import IdentityStatus

log = logging.getLogger("weft.local.identities")

SHORTEST_TTL = timedelta(seconds=2)
LONGEST_TTL = Terms().longest
_TOKEN_LIFETIME = timedelta(minutes=10)  # a token is issued for each request and used immediately
# Every proxy of this machine receives a new root within milliseconds.
_PROPAGATION = timedelta(seconds=2)


class Trust(msgspec.Struct, frozen=True):
    """The CA that signs the certificates of a local mesh, and their lifetime. `ca`: the directory of the CA, which is
    created if missing; None for a new root that is discarded when the mesh ends."""

    ca: Path | None = None  # directory of a CA, created if missing; None: a root that is discarded with the mesh
    certificate_ttl: timedelta = LIFETIME


class Identities:
    def __init__(self, directory: Path, trust_domain: str, trust: Trust) -> None:
        """Open or create the CA that `trust` describes, for this trust domain. `directory`: the directory for the pods'
        SDS sockets and the agent's files. Raises AuthorityError."""
        terms = Terms(lifetime=trust.certificate_ttl, propagation=_PROPAGATION)
        self.trust_domain = trust_domain
        self.authority = (
            Authority.in_memory(trust_domain, terms)
            if trust.ca is None
            else Authority.open(trust.ca, trust_domain, terms)
        )
        self._directory = directory
        self._tokens = TokenIssuer()
        service = CertificateService(self.authority, self._tokens.checker())
        self._agent = Agent(service, directory / "agent", lifetime=trust.certificate_ttl)
        self._admin = AdminSocket(self.authority, trust.ca) if trust.ca is not None else None
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        self._agent.start()
        self._running = asyncio.create_task(self._run(), name="authority")

    async def _run(self) -> None:
        if self._admin is not None:
            try:
                await self._admin.open()
            except OSError as error:
                log.warning("`weft ca rotate DIR` cannot reach this mesh: %s; use `weft ca rotate --mesh`", error)
        await self.authority.run()

    async def close(self) -> None:
        await self._agent.close()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
        if self._admin is not None:
            await self._admin.close()
        self.authority.close()

    def socket(self, plan: PodPlan) -> Path:
        return self._directory / str(plan.uid) / "sds.sock"

    async def give(self, plan: PodPlan, network: NetworkNamespace) -> None:
        """Open the SDS socket of the pod with this plan and request its certificate. `network` is the pod's network
        namespace: only processes in it may connect to the socket. Raises DoorError."""
        workload = plan.workload
        caller = Caller(workload.namespace, workload.service_account, plan.name, plan.pod_uid)

        async def token() -> str:
            return self._tokens.issue(caller, audience=AUDIENCE, lifetime=_TOKEN_LIFETIME)

        identity = Identity(self.trust_domain, workload.namespace, workload.service_account)
        bearer = Bearer(name=plan.key, identity=identity, token=token)
        doorway = Doorway(path=self.socket(plan), uid=PROXY_UID, gid=PROXY_GID, network=network.path)
        await self._agent.add(bearer, doorway)

    async def take(self, plan: PodPlan) -> None:
        """Close the SDS socket of the pod with this plan, discard its key and revoke its tokens. Idempotent."""
        self._tokens.revoke(plan.pod_uid)
        await self._agent.remove(plan.key)

    def lack(self, plan: PodPlan) -> str:
        return self._agent.lack(plan.key)

    def status(self, plan: PodPlan) -> IdentityStatus | None:
        return self._agent.status(plan.key)

    def problem(self, plan: PodPlan) -> Problem | None:
        """Return what is wrong with the certificate of the pod with this plan, or None."""
        status, now = self.status(plan), time.time()
        if status is None or not status.error:
            return None
        severity = Severity.WARNING if status.is_held(now) else Severity.ERROR
        where = where_of(plan.workload.origin, f"pod {plan.key}")
        return Problem(where, f"identity: {status.trouble(now)}", "weft tries again; see: weft ca show", severity)

    def ca_problems(self) -> tuple[Problem, ...]:
        return self.authority.status().problems(datetime.now(UTC))

    def rotate(self, propagation: timedelta | None = None) -> AuthorityStatus:
        """Start the rotation of the CA to a new root, and return the CA's state. Raises AuthorityError. `propagation`:
        how long the new root is trusted before it signs; None for the default."""
        return self.authority.rotate(propagation)
