from __future__ import annotations

import pytest

from ca import making
from weft.ca.authority import Authority
from weft.ca.server import CaServer
from weft.ca.service import CertificateService
from weft.ca.signed_tokens import TokenIssuer


class Served:
    """A CA on a TCP port and on a Unix socket."""

    def __init__(self, socket: str) -> None:
        self.authority = Authority.in_memory(making.DOMAIN)
        self.issuer = TokenIssuer()
        self.service = CertificateService(self.authority, self.issuer.checker())
        self.server = CaServer(self.service)
        self.unix = f"unix:{socket}"
        self.address = ""

    async def start(self) -> None:
        self.address = await self.server.listen("127.0.0.1:0")
        await self.server.listen(self.unix)

    @property
    def roots(self) -> str:
        return "".join(self.authority.bundle())

    def token(self) -> str:
        return self.issuer.issue(making.CALLER)


@pytest.fixture
async def served(tmp_path):
    made = Served(str(tmp_path / "ca.sock"))
    await made.start()
    yield made
    await made.server.close()
