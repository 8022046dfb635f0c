"""The agent of a Kubernetes node as a process, with real Envoys that reach it only through their volume."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from eventually import eventually
from identity_rig import identities
from node.kubelet_rig import NODE, kubernetes_node, pod
from node.redirect_rig import ARGUMENTS, ask, rules
from node.tls_envoy import connect, pod_network, tls_envoy, until_served
from weft.ca.authority import Authority
from weft.ca.service import CertificateService
from weft.model.proxy import SDS_SOCKET
from weft.node.daemon import Daemon, DaemonSettings

pytestmark = pytest.mark.root

# The capabilities of the DaemonSet, in a new PID namespace as in every container.
AS_IN_ITS_CONTAINER = (
    *("unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGTERM"),
    *("setpriv", "--bounding-set=-all,+chown,+dac_override,+fowner", "--inh-caps=-all", "--no-new-privs"),
)
# With --redirect, where the agent must see the processes of pods.
AS_WITH_REDIRECTS = (
    "setpriv",
    "--bounding-set=-all,+chown,+dac_override,+fowner,+sys_admin,+sys_ptrace,+net_admin,+net_raw",
    "--inh-caps=-all",
)


@pytest.fixture
async def node():
    async with kubernetes_node() as made:
        yield made


@pytest.fixture
def network():
    with pod_network() as made:
        yield made


@pytest.fixture
async def clients(tmp_path, node):
    """Clients with certificates of the node's CA."""
    async with identities(tmp_path / "clients") as rig:
        rig.authority = node.authority
        yield rig


@contextlib.asynccontextmanager
async def envoy_in(node, volume, network):
    """Run an Envoy in the pod, which sees the volume at another path."""
    mount = node.directory / "seen"
    mount.mkdir(exist_ok=True)
    async with tls_envoy(node.directory / "envoy", mount / SDS_SOCKET, network, volume=volume) as made:
        yield made


async def served(network, clients) -> str:
    connection = await until_served(network, clients.tls())
    assert await connection.get() == 200
    await connection.close()
    return connection.serial


def settings(node, **more) -> DaemonSettings:
    fields = {
        "node_name": NODE,
        "control": node.address,
        "roots": node.roots_file,
        "token": node.token_file,
        "kubelet_root": node.kubelet.kubelet.root,
        "state": node.state,
        "look": 0.05,
    }
    return DaemonSettings(**{**fields, **more})


@contextlib.asynccontextmanager
async def daemon(node, **more):
    made, ready = Daemon(settings(node, **more)), asyncio.Event()
    running = asyncio.create_task(made.run(ready.set))
    async with asyncio.timeout(30):
        await asyncio.wait({running, asyncio.create_task(ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.wait({running})


async def test_with_no_more_than_three_capabilities_and_without_seeing_the_pods_processes(node, network, clients):
    web = pod()
    async with node.agent(prefix=AS_IN_ITS_CONTAINER):
        volume = await node.kubelet.publish(web, node.token(web))
        async with envoy_in(node, volume, network):
            await served(network, clients)
            connection = await connect(network, clients.tls())
            assert b"spiffe://cluster.local/ns/shop/sa/web" in connection.certificate.public_bytes(Encoding.DER)
            await connection.close()
        # Even root, with all privileges, is rejected, because it is not the proxy's user.
        directory = os.open(volume, os.O_PATH)
        reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/{SDS_SOCKET}")
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        writer.close()
        os.close(directory)
        await eventually(lambda: "rejected process 0 of user 0: only user 1337 may connect" in node.log())


async def test_a_pod_requests_its_redirect_through_its_volume_and_the_agent_has_only_the_needed_capabilities(
    node, network
):
    web, seen = pod(), node.directory / "seen"
    seen.mkdir()
    async with node.agent("--redirect", prefix=AS_WITH_REDIRECTS):
        volume = await node.kubelet.publish(web, node.token(web))
        code, said = await ask(network, volume, *ARGUMENTS, seen=seen)
        assert code == 0, said
        assert "--to-ports 15001" in rules(network)
        await node.kubelet.unpublish(web)
        assert not volume.exists()


async def test_a_proxy_that_starts_after_an_agents_restart_without_a_ca_has_the_same_certificate(
    node, network, clients
):
    web = pod()
    async with node.agent() as agent:
        volume = await node.kubelet.publish(web, node.token(web))
        async with envoy_in(node, volume, network):
            first = await served(network, clients)
            connection = await connect(network, clients.tls())
            agent.send_signal(signal.SIGKILL)
            await agent.wait()
            assert await connection.get() == 200
            assert await served(network, clients) == first  # a new connection, without an agent
            await connection.close()
    await node.close_ca()
    async with node.agent(), envoy_in(node, volume, network):
        assert await served(network, clients) == first
        await node.kubelet.publish(web, node.token(web))  # kubelet continues its calls
        await node.open_ca()
        assert await served(network, clients) == first


async def test_after_a_restart_without_kept_state_the_proxy_runs_on_and_kubelets_next_call_restores_the_rest(
    node, network, clients
):
    web = pod()
    async with node.agent():
        volume = await node.kubelet.publish(web, node.token(web))
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(envoy_in(node, volume, network))
            first = await served(network, clients)
            stack = stack.pop_all()
    for kept in node.state.iterdir():
        kept.unlink()
    async with stack, node.agent():
        assert (volume / SDS_SOCKET).is_socket()  # and serves the roots
        assert await served(network, clients) == first
        await node.kubelet.publish(web, node.token(web))
        await eventually(lambda: served(network, clients), lambda value: value != first)


async def test_pods_that_went_while_no_agent_was_there_are_forgotten(node):
    web, api = pod("web-0"), pod("api-0")
    async with node.agent():
        for each in (web, api):
            await node.kubelet.publish(each, node.token(each))
        await eventually(lambda: len(list(node.state.glob("*.json"))) == 2)
    gone = node.kubelet.volume(web).path
    (gone.parent / "vol_data.json").unlink()
    gone.rmdir()
    async with daemon(node) as made:
        assert len(made.pods) == 1
        assert [file.stem for file in node.state.iterdir()] == [api.uid]
        await node.kubelet.unpublish(api)  # also a volume that another agent published
        assert not list(node.state.iterdir()) and not node.kubelet.volume(api).path.exists()


async def test_the_agent_has_a_certificate_of_its_own_and_new_credentials_with_new_roots(node):
    async with daemon(node) as made, contextlib.aclosing(made.own.credentials()) as credentials:
        async with asyncio.timeout(30):
            first = await anext(credentials)
            assert first.roots.decode() == "".join(node.authority.bundle())
            assert made.own.status.identity == "spiffe://cluster.local/ns/istio-system/sa/weft-node"
            node.authority.rotate(timedelta(hours=1))
            second = await anext(credentials)
            assert second.roots.decode() == "".join(node.authority.bundle()) != first.roots.decode()


async def test_a_ca_with_a_new_root_is_trusted_again_by_the_roots_file(node, caplog):
    caplog.set_level("INFO")
    await node.close_ca()
    node.authority = Authority.in_memory("cluster.local")
    node.service = CertificateService(node.authority, node.issuer.checker())
    web = pod()
    async with daemon(node) as made:  # with the old root
        await node.open_ca()
        publishing = asyncio.create_task(node.kubelet.publish(web, node.token(web)))
        await eventually(lambda: made.agent.statuses())
        await eventually(lambda: "is not signed by a trusted root" in made.agent.status(web.uid).error)
        node.write_roots(node.authority)
        await eventually(lambda: made.agent.status(web.uid).serial)
        assert made.agent.bundle == node.authority.bundle()
        await publishing
    assert "have changed; there are 1 now" in caplog.text


async def test_two_agents_do_not_serve_at_once(node, caplog):
    caplog.set_level("INFO")
    async with daemon(node):
        second = asyncio.create_task(Daemon(settings(node)).run())
        await node.kubelet.register()
        await eventually(lambda: "another agent is still running" in caplog.text)
        assert not second.done()
    registration = node.kubelet.kubelet.registration(node.kubelet.driver)
    await eventually(registration.is_socket)
    await node.kubelet.register()
    second.cancel()
    await asyncio.wait({second})


async def test_its_readiness_and_its_numbers(node):
    web = pod()
    async with daemon(node) as made:
        assert "has not registered the driver" in made.lack()
        await node.kubelet.register()
        assert made.lack() == ""
        await node.kubelet.publish(web, node.token(web))

        def value(name):
            return next(sample.value for each in made.metrics() for sample in each.samples if sample.name == name)

        await eventually(lambda: value("weft_node_identities_held") == 1 and value("weft_node_own_identity_held") == 1)
        assert value("weft_node_pods") == 1 and value("weft_node_identities_failing") == 0
