"""A CA, an agent and workloads' sockets, for tests that run real Envoys: what every sidecar finds in a mesh.

async with identities(tmp_path) as rig:
    sds = await rig.add("web-0", network=namespace)
    Bootstrap(..., sds=Unix(str(sds)))   # and make the socket's directory visible: ProxyPlan.sockets
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import tempfile
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

from weft.ca.authority import Authority, Terms
from weft.ca.certificates import Issued
from weft.ca.service import CertificateService
from weft.ca.signed_tokens import AUDIENCE, TokenIssuer
from weft.ca.signer import CaUnavailable
from weft.ca.tokens import Caller
from weft.model.identity import Identity
from weft.model.proxy import PROXY_GID, PROXY_UID
from weft.netns.namespace import NetworkNamespace
from weft.node.agent import Agent
from weft.node.door import Doorway
from weft.node.identities import Bearer
from weft.node.key import Key, KeyKind
from weft.node.status import IdentityStatus

TRUST_DOMAIN = "cluster.local"


class Line:
    """The connection to the CA, which can be cut."""

    def __init__(self, service: CertificateService) -> None:
        self._service = service
        self.cut = False
        self.asked = 0

    async def create(self, token: str, csr: bytes, lifetime: timedelta | None = None) -> Issued:
        self.asked += 1
        if self.cut:
            raise CaUnavailable("the line is cut")
        return await self._service.create(token, csr, lifetime)

    def bundles(self) -> AsyncIterator[tuple[str, ...]]:
        return self._service.bundles()


class IdentityRig:
    def __init__(self, directory: Path, lifetime: timedelta, terms: Terms | None) -> None:
        self.directory = directory
        self.authority = Authority.in_memory(TRUST_DOMAIN, terms)
        self.issuer = TokenIssuer()
        self.line = Line(CertificateService(self.authority, self.issuer.checker()))
        self._changed = asyncio.Event()
        self.agent = Agent(self.line, directory / "private", lifetime=lifetime, changed=lambda _: self._changed.set())

    async def add(
        self,
        pod: str = "web-0",
        *,
        namespace: str = "shop",
        account: str = "default",
        network: NetworkNamespace | None = None,
        key: KeyKind = KeyKind.P256,
    ) -> Path:
        """Give a workload its identity; returns its socket."""
        caller = Caller(namespace, account, pod, str(uuid.uuid4()))

        async def token() -> str:
            return self.issuer.issue(caller, audience=AUDIENCE, lifetime=timedelta(minutes=10))

        path = self.directory / f"sds-{pod}" / "sds.sock"
        bearer = Bearer(name=f"{namespace}/{pod}", identity=identity(account, namespace), token=token, key=key)
        doorway = Doorway(path=path, uid=PROXY_UID, gid=PROXY_GID, network=network.path if network else None)
        await self.agent.add(bearer, doorway)
        return path

    def status(self, pod: str = "web-0", namespace: str = "shop") -> IdentityStatus:
        status = self.agent.status(f"{namespace}/{pod}")
        assert status is not None
        return status

    async def until(self, condition, seconds: float = 20) -> None:
        """Check the condition at every change of a status."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def tls(self, account: str = "client", lifetime: timedelta = timedelta(hours=1)) -> ssl.SSLContext:
        """A client with a certificate of the mesh, which trusts the mesh's roots and does not check the host name."""
        key = Key()
        issued = self.authority.sign(key.request(identity(account)), identity(account), lifetime)
        context = ssl.create_default_context(cadata="".join(self.authority.bundle()))
        context.check_hostname = False
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_bytes("".join(issued.chain).encode() + key.secret_pem())
            context.load_cert_chain(file.name)
        return context


def identity(account: str = "default", namespace: str = "shop") -> Identity:
    return Identity(TRUST_DOMAIN, namespace, account)


@contextlib.asynccontextmanager
async def identities(
    directory: Path, *, lifetime: timedelta = timedelta(hours=24), terms: Terms | None = None
) -> AsyncIterator[IdentityRig]:
    rig = IdentityRig(directory, lifetime, terms)
    rig.agent.start()
    keeping = asyncio.create_task(rig.authority.run())
    try:
        yield rig
    finally:
        keeping.cancel()
        await asyncio.wait({keeping})
        await rig.agent.close()
        rig.authority.close()
