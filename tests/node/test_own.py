"""The agent's own identity; over TLS and with a process around it in test_daemon.py."""

from __future__ import annotations

import asyncio
import contextlib

from eventually import eventually
from identity_rig import TRUST_DOMAIN
from weft.ca.authority import Authority
from weft.ca.service import CertificateService
from weft.ca.signed_tokens import TokenIssuer
from weft.ca.tokens import Caller
from weft.node.own import OwnIdentity


class Own:
    def __init__(self, directory) -> None:
        self.authority, self.issuer = Authority.in_memory(TRUST_DOMAIN), TokenIssuer()
        self.file = directory / "token"
        service = CertificateService(self.authority, self.issuer.checker())
        self.identity = OwnIdentity(self.file, service, trust_domain=TRUST_DOMAIN)

    def token(self) -> str:
        return self.issuer.issue(Caller("istio-system", "weft-node", "weft-node-x", "u-1"))


async def test_waits_for_a_token_and_for_the_roots_and_then_has_credentials(tmp_path, caplog):
    own = Own(tmp_path)
    running = asyncio.create_task(own.identity.run())
    credentials = own.identity.credentials()
    first = asyncio.ensure_future(anext(credentials))
    async with asyncio.timeout(30):
        await eventually(lambda: "has no valid token of this agent" in caplog.text)
        assert own.identity.status is None and own.identity.held is None
        own.file.write_text(own.token())
        await eventually(lambda: not (own.identity.status is None or not own.identity.status.serial))
        assert not first.done() and own.identity.held is None  # the roots are not known yet
        own.identity.trust(own.authority.bundle())
        found = await first
    assert found == own.identity.held and found.roots.decode() == "".join(own.authority.bundle())
    assert b"PRIVATE KEY" in found.key and b"CERTIFICATE" in found.chain
    assert repr(found) == "<credentials>"
    again = asyncio.ensure_future(anext(credentials))
    own.identity.trust(own.authority.bundle())
    await asyncio.sleep(0.05)
    assert not again.done()  # nothing has changed
    for task in (running, again):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
