"""The agent as a process of its own, under real Envoys: killed, started again, and without a CA."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from eventually import eventually
from identity_rig import TRUST_DOMAIN, identities, identity
from node.tls_envoy import connect, pod_network, tls_envoy, until_served
from weft.ca.authority import Authority
from weft.ca.server import CaServer
from weft.ca.service import CertificateService
from weft.ca.signed_tokens import TokenIssuer
from weft.ca.tokens import Caller
from weft.node.door import Doorway
from weft.node.registrations import DirectoryRefused, Registration
from weft.node.service import NodeService, _doorway

pytestmark = pytest.mark.root


class Machine:
    """A CA behind a socket, a directory of registrations, and tokens."""

    def __init__(self, directory) -> None:
        directory.chmod(0o755)
        self.directory = directory
        self.workloads = directory / "workloads"
        self.workloads.mkdir(mode=0o700)
        self.authority = Authority.in_memory(TRUST_DOMAIN)
        self.issuer = TokenIssuer()
        self._server: CaServer | None = None

    @property
    def ca(self) -> str:
        return f"unix:{self.directory}/ca.sock"

    async def open_ca(self) -> None:
        self._server = CaServer(CertificateService(self.authority, self.issuer.checker()))
        await self._server.listen(self.ca)

    async def close_ca(self) -> None:
        if self._server is not None:
            await self._server.close()
        self._server = None

    def register(self, pod="web-0", *, network, **fields):
        """Write a registration file; return the path of the workload's socket."""
        token = self.directory / f"{pod}.token"
        caller = Caller("shop", "web", pod, f"uid-{pod}")
        token.write_text(self.issuer.issue(caller, lifetime=timedelta(hours=1)))
        socket = self.directory / f"sds-{pod}" / "sds.sock"
        registration = {
            "namespace": "shop",
            "pod": pod,
            "pod_uid": f"uid-{pod}",
            "service_account": "web",
            "token_file": str(token),
            "socket": str(socket),
            "network_namespace": str(network.path),
            **fields,
        }
        self.write(f"{pod}.json", json.dumps(registration))
        return socket

    def write(self, name, text) -> None:
        fresh = self.workloads / f".{name}"
        fresh.write_text(text)
        fresh.rename(self.workloads / name)

    @contextlib.asynccontextmanager
    async def agent(self):
        log = self.directory / "agent.log"
        with log.open("ab") as file:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "weft.cli", "node", "--workloads", str(self.workloads), "--ca", self.ca),
                stdout=file,
                stderr=file,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            async with asyncio.timeout(30):
                await process.wait()

    def log(self) -> str:
        return (self.directory / "agent.log").read_text()


@pytest.fixture
async def machine(tmp_path):
    made = Machine(tmp_path)
    await made.open_ca()
    yield made
    await made.close_ca()


@pytest.fixture
def network():
    with pod_network() as made:
        yield made


@pytest.fixture
async def clients(tmp_path, machine):
    """Clients with certificates of the machine's CA."""
    async with identities(tmp_path / "clients") as rig:
        rig.authority = machine.authority
        yield rig


async def served(network, clients) -> str:
    connection = await until_served(network, clients.tls())
    assert await connection.get() == 200
    await connection.close()
    return connection.serial


async def test_a_killed_and_restarted_agent_interrupts_nothing(machine, network, clients, tmp_path):
    sds = machine.register(network=network)
    async with machine.agent() as agent, contextlib.AsyncExitStack() as stack:
        await eventually(sds.exists)
        await stack.enter_async_context(tls_envoy(tmp_path / "envoy", sds, network))
        first = await served(network, clients)
        connection = await connect(network, clients.tls())
        agent.send_signal(signal.SIGKILL)
        await agent.wait()
        assert await served(network, clients) == first  # without an agent
        async with machine.agent():
            await eventually(lambda: served(network, clients), lambda fresh: fresh != first)
            assert await connection.get() == 200  # the connection from before
        await connection.close()


async def test_without_a_ca_proxies_keep_their_certificates_and_a_new_agent_serves_once_the_ca_is_back(
    machine, network, clients, tmp_path
):
    sds = machine.register(network=network)
    async with machine.agent() as agent, contextlib.AsyncExitStack() as stack:
        await eventually(sds.exists)
        await stack.enter_async_context(tls_envoy(tmp_path / "envoy", sds, network))
        first = await served(network, clients)
        agent.send_signal(signal.SIGKILL)
        await agent.wait()
        await machine.close_ca()
        before = sds.stat().st_ino
        async with machine.agent():
            await eventually(lambda: sds.stat().st_ino != before)
            await eventually(lambda: "no certificate since" in machine.log())
            assert await served(network, clients) == first
            await machine.open_ca()
            await eventually(lambda: served(network, clients), lambda value: value != first)
    assert "has a new certificate, after" in machine.log()


async def test_registrations_come_and_go_and_a_broken_one_stops_no_other(machine, network, caplog):
    service = NodeService(
        machine.workloads, CertificateService(machine.authority, machine.issuer.checker()), lifetime=timedelta(hours=1)
    )
    running = asyncio.create_task(service.run())
    try:
        web = machine.register("web-0", network=network)
        api = machine.register("api-0", network=network)
        await eventually(lambda: web.exists() and api.exists())
        shown = web.parent.stat()
        await eventually(
            lambda: len(service.agent.statuses()) == 2 and all(each.serial for each in service.agent.statuses())
        )
        assert {each.identity for each in service.agent.statuses()} == {str(identity("web"))}
        before = service.agent.status("shop/web-0").serial
        machine.write("web-0.json", "{not json")
        machine.write("other.json", "[]")
        await eventually(lambda: "other.json" in caplog.text and "web-0.json" in caplog.text)
        assert web.exists() and service.agent.status("shop/web-0").serial == before
        (machine.workloads / "api-0.json").unlink()
        await eventually(lambda: not api.parent.exists())
        assert web.exists() and service.agent.status("shop/api-0") is None
        machine.register("web-0", network=network, service_account="other")
        await eventually(lambda: str(identity("other")) in {each.identity for each in service.agent.statuses()})
        # Its token still belongs to the first account: the certificate is for the wrong identity and is not used.
        wrong = "not for spiffe://cluster.local/ns/shop/sa/other"
        await eventually(lambda: (now := service.agent.status("shop/web-0")) is not None and wrong in now.error)
        assert service.agent.status("shop/web-0").serial == ""
    finally:
        running.cancel()
        await asyncio.wait({running})
    # A running pod has mounted this directory, which must survive changes of its registration.
    assert not web.exists() and os.path.samestat(web.parent.stat(), shown)
    assert [path.name for path in (machine.workloads / ".agent").iterdir()] == ["lock"]


async def test_nothing_that_fails_for_one_workload_keeps_the_next_from_its_identity(machine, network, monkeypatch):
    service = NodeService(
        machine.workloads, CertificateService(machine.authority, machine.issuer.checker()), lifetime=timedelta(hours=1)
    )
    add = service.agent.add

    async def failing(bearer, doorway):
        if bearer.name == "shop/api-0":
            raise RuntimeError("not thought of")
        await add(bearer, doorway)

    monkeypatch.setattr(service.agent, "add", failing)
    running = asyncio.create_task(service.run())
    try:
        machine.register("api-0", network=network)
        web = machine.register("web-0", network=network)
        await eventually(web.exists)
    finally:
        running.cancel()
        await asyncio.wait({running})


async def test_a_second_agent_is_rejected_and_leftovers_of_a_killed_agent_are_removed(machine, network):
    def service() -> NodeService:
        ca = CertificateService(machine.authority, machine.issuer.checker())
        return NodeService(machine.workloads, ca, lifetime=timedelta(hours=1))

    (machine.workloads / ".agent").mkdir(mode=0o700)
    (machine.workloads / ".agent" / "7").touch()
    web = machine.register(network=network)
    first = service()
    running = asyncio.create_task(first.run())
    try:
        await eventually(lambda: first.agent.status("shop/web-0") is not None)
        assert {path.name for path in (machine.workloads / ".agent").iterdir()} == {"lock", "0"}
        with pytest.raises(DirectoryRefused, match="another agent"):
            await service().run()
        assert web.exists() and first.agent.status("shop/web-0") is not None
    finally:
        running.cancel()
        await asyncio.wait({running})


async def test_a_missing_or_empty_token_is_reported_and_read_again(machine, network):
    service = NodeService(
        machine.workloads, CertificateService(machine.authority, machine.issuer.checker()), lifetime=timedelta(hours=1)
    )
    running = asyncio.create_task(service.run())
    try:
        machine.register(network=network)
        token = machine.directory / "web-0.token"
        good = token.read_text()
        token.unlink()
        status = lambda: service.agent.status("shop/web-0")  # noqa: E731
        await eventually(lambda: status() is not None)
        if status().serial:  # the agent was faster than the test; retry
            await service.agent.remove("shop/web-0")
            service._served.clear()
            service._changed.set()
        await eventually(lambda: status() is not None and "No such file" in status().error)
        token.write_text("\n")
        await eventually(lambda: "is empty" in status().error)
        token.write_text(good)
        await eventually(lambda: status().serial and not status().error)
    finally:
        running.cancel()
        await asyncio.wait({running})


def test_the_registration_decides_which_process_may_open_the_socket():
    fields = {"namespace": "shop", "pod": "web-0", "pod_uid": "1", "token_file": "/t", "socket": "/run/s/sds.sock"}
    guarded = _doorway(Registration(**fields, network_namespace="/run/netns/web-0", uid=2000, gid=3000))
    assert guarded == Doorway(path=Path("/run/s/sds.sock"), uid=2000, gid=3000, network=Path("/run/netns/web-0"))
    assert _doorway(Registration(**fields)).network is None
