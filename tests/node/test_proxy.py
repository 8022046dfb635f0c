from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from ipaddress import IPv4Interface
from pathlib import Path

import pytest

from identity_rig import identities
from weft.control.plane import ControlPlane
from weft.envoy import binary
from weft.envoy.bootstrap import Bootstrap, BootstrapNode, Unix
from weft.model.access_log import FileLog
from weft.model.instance import Instance
from weft.model.names import ObjectKey
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.netns import links, namespace
from weft.netns.interception import Interception
from weft.node.proxy import ProxyPlan, SupervisedProxy, private_memory

pytestmark = pytest.mark.root

ADDRESS = "10.244.0.5"


@pytest.fixture
async def place(tmp_path):
    """A pod on a bridge, its identity, and a control plane behind a socket that only the proxies' user may open."""
    suffix = os.urandom(3).hex()
    mesh, pod = namespace.make(f"wt-proxy-{suffix}"), namespace.make(f"wt-proxyp-{suffix}")
    bridge = links.Bridge(mesh, IPv4Interface("10.244.0.1/16"))
    links.make_bridge(bridge)
    links.connect(links.PodLink(pod, bridge, IPv4Interface(f"{ADDRESS}/16").ip))
    control = ControlPlane()
    control.apply(())
    instance = Instance("web-0", "shop", (ADDRESS,), meshed=True, protocols=((8080, Protocol.HTTP),))
    control.put(ObjectKey("Pod", "shop", "web-0"), (instance,))
    xds = Path(f"/tmp/wt-{suffix}.sock")
    await control.listen(f"unix:{xds}")
    os.chown(xds, 0, 1337)
    xds.chmod(0o660)
    async with identities(tmp_path) as rig:
        await rig.add("web-0", network=pod)
        yield mesh, pod, control, xds, tmp_path
    await control.close()
    xds.unlink(missing_ok=True)
    namespace.delete(pod)
    namespace.delete(mesh)


def plan(pod, xds: Path, directory: Path) -> ProxyPlan:
    sds = directory / "sds-web-0" / "sds.sock"  # as the rig of identities names it
    node = BootstrapNode(name="web-0", namespace="shop", addresses=(ADDRESS,))
    return ProxyPlan(
        bootstrap=Bootstrap(node=node, xds=Unix(str(xds)), sds=Unix(str(sds))),
        binary=binary.find(),
        namespace=pod,
        directory=directory,
        interception=Interception(),
        sockets=(str(xds), str(sds.parent)),
    )


@asynccontextmanager
async def running(wanted: ProxyPlan, control: ControlPlane, lacks=lambda: ""):
    changed = asyncio.Event()
    lines: list[bytes] = []

    async def output(stream: asyncio.StreamReader) -> None:
        async for line in stream:
            lines.append(line)

    proxy = SupervisedProxy(wanted, synced=control.wait_synced, changed=changed.set, output=output, lacks=lacks)
    task = asyncio.ensure_future(proxy.run())

    async def until(condition) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await changed.wait()
                changed.clear()

    try:
        yield proxy, until
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert not namespace.processes_in(wanted.namespace)


async def answers(where, port: int = 8080) -> bytes:
    """Return the response of the pod's port to a caller on the bridge."""
    connection = namespace.socket_in(where)
    await asyncio.get_running_loop().sock_connect(connection, (ADDRESS, port))
    reader, writer = await asyncio.open_connection(sock=connection)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer


async def test_it_is_ready_once_it_has_its_config_and_then_intercepts(place):
    mesh, pod, control, xds, directory = place
    async with running(plan(pod, xds, directory), control) as (proxy, until):
        await until(lambda: proxy.ready)
        # Nothing listens on the port, so the response is the proxy's.
        assert b"503 Service Unavailable" in await answers(mesh)
        assert proxy.memory() > 1_000_000
        assert "Uid:\t1337\t1337" in Path(f"/proc/{proxy.pid}/status").read_text()
        assert proxy.admin is not None and await proxy.admin.ready()


def settings(access_log: str) -> tuple[ObjectKey, tuple[Settings, ...]]:
    return ObjectKey("ConfigMap", "istio-system", "istio"), (
        Settings(logs=(FileLog(access_log),) if access_log else ()),
    )


async def test_a_proxy_without_its_listeners_is_not_ready_and_has_the_reason(place):
    mesh, pod, control, xds, directory = place
    control.put(*settings("/no/such/directory/access.log"))
    async with running(plan(pod, xds, directory), control) as (proxy, until):
        await until(lambda: proxy.message)
        assert not proxy.ready
        assert "no virtualInbound and no virtualOutbound listener" in proxy.message
        assert "/no/such/directory/access.log" in proxy.message
        control.put(*settings(""))
        await until(lambda: proxy.ready)
        assert (proxy.message, proxy.restarts) == ("", 0)
        assert b"503 Service Unavailable" in await answers(mesh)


async def test_a_proxy_without_an_identity_is_not_ready_and_has_the_reason(place):
    mesh, pod, control, xds, directory = place
    why = ["no identity: the CA is away"]
    async with running(plan(pod, xds, directory), control, lambda: why[0]) as (proxy, until):
        await until(lambda: proxy.message)
        assert proxy.message == "proxy: no identity: the CA is away" and not proxy.ready
        async with asyncio.timeout(30):
            await proxy.admin.wait_until_ready()  # Envoy itself reports ready
        with pytest.raises(OSError):  # traffic is not intercepted yet, and nothing else listens
            await answers(mesh)
        assert not proxy.ready
        why[0] = ""
        await until(lambda: proxy.ready)
        assert (proxy.message, proxy.restarts) == ("", 0)


async def test_its_memory_is_never_dumped(place):
    _, pod, control, xds, directory = place
    async with running(plan(pod, xds, directory), control) as (proxy, until):
        await until(lambda: proxy.ready)
        limits = Path(f"/proc/{proxy.pid}/limits").read_text().split()
        place_of = limits.index("core")
        assert limits[place_of + 3 : place_of + 5] == ["1", "1"]


async def test_it_is_back_after_kill_9_and_nothing_passes_by_it_meanwhile(place):
    mesh, pod, control, xds, directory = place
    async with running(plan(pod, xds, directory), control) as (proxy, until):
        await until(lambda: proxy.ready)
        listening = namespace.socket_in(pod)
        listening.bind((ADDRESS, 9999))
        listening.listen()
        first = proxy.pid
        os.kill(first, signal.SIGKILL)
        await until(lambda: not proxy.ready)
        assert "signal 9" in proxy.message and "starts again in 0.1 s" in proxy.message
        with pytest.raises(ConnectionRefusedError):
            await answers(mesh, 9999)
        await until(lambda: proxy.ready)
        assert (proxy.restarts, proxy.message) == (1, "")
        assert proxy.pid not in (0, first)
        listening.close()


async def test_an_envoy_that_cannot_start_is_reported_and_retried(place, tmp_path):
    _, pod, control, xds, directory = place
    broken = tmp_path / "envoy"
    broken.write_text("#!/bin/sh\nexit 7\n")
    broken.chmod(0o755)
    import msgspec

    wanted = msgspec.structs.replace(plan(pod, xds, directory), binary=broken)
    async with running(wanted, control) as (proxy, until):
        await until(lambda: "status 7" in proxy.message)
        await until(lambda: proxy.restarts >= 1)
        assert not proxy.ready


async def test_draining_an_idle_proxy_is_quick_and_bounded_when_it_is_dead(place):
    _, pod, control, xds, directory = place
    async with running(plan(pod, xds, directory), control) as (proxy, until):
        await until(lambda: proxy.ready)
        async with asyncio.timeout(30):
            await proxy.drain(timeout=60)
        os.kill(proxy.pid, signal.SIGKILL)
        await until(lambda: not proxy.ready)
        async with asyncio.timeout(30):
            await proxy.drain(timeout=2.5)


def test_the_memory_of_a_missing_process_is_zero():
    assert private_memory(0) == 0
    assert private_memory(os.getpid()) > 1_000_000
