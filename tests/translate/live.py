"""Both sides of a call inside one real Envoy: app → outbound listener → HTTP/2 → inbound listener → app.

What translation makes is taken as it is; only the sockets are bound to ports of this machine's loopback, because there
is no interception here that would bring connections to 15001 and 15006.
"""

import asyncio
import contextlib
import socket
import tempfile
from pathlib import Path

from envoy.config.cluster.v3.cluster_pb2 import Cluster

from golden.render import compile_group
from model.builders import group, put, service
from weft.envoy import binary
from weft.envoy.validate import bootstrap
from weft.model.instance import Instance
from weft.model.mesh import Mesh
from weft.model.names import labels_of
from weft.model.service import Protocol, ServicePort
from weft.model.sidecar import IngressListener, Sidecar
from weft.translate.built import Built

HOST = "orders.shop.svc.cluster.local"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.asynccontextmanager
async def pair(app_port, *values, protocol=Protocol.HTTP, settings=None, change=None):
    """Yields the port on which a caller finds the service `orders`. `change` may alter what Envoy is started with."""
    inbound, outbound = free_port(), free_port()
    mesh = Mesh(settings)
    put(
        mesh,
        service("orders", protocol=protocol, target=inbound, addresses=("127.0.0.1",)),
        Instance("orders-0", "shop", ("127.0.0.1",), labels_of({"app": "orders"}), meshed=True),
        Sidecar(
            "orders",
            "shop",
            labels_of({"app": "orders"}),
            ingress=(IngressListener(ServicePort(inbound, protocol=protocol), f"127.0.0.1:{app_port}"),),
        ),
        *values,
    )
    caller, _ = compile_group(mesh, group("frontend"))
    server, _ = compile_group(mesh, group("orders"))
    calling = next(listener for listener in caller.listeners if listener.name.endswith("_80"))
    receiving = next(listener for listener in server.listeners if listener.name == "virtualInbound")
    for listener, port in ((calling, outbound), (receiving, inbound)):
        del listener.additional_addresses[:]
        listener.ClearField("bind_to_port")
        listener.address.socket_address.address = "127.0.0.1"
        listener.address.socket_address.port_value = port
    clusters = {cluster.name: cluster for cluster in (*caller.clusters, *server.clusters)}
    async with running(
        [calling, receiving],
        clusters.values(),
        routes=caller.routes,
        endpoints=caller.endpoints,
        listening=(inbound, outbound),
        change=change,
    ):
        yield outbound


@contextlib.asynccontextmanager
async def running(listeners, clusters, *, routes=(), endpoints=(), listening=(), change=None):
    """An Envoy with just these."""
    messages = [Cluster.FromString(each.body) if isinstance(each, Built) else each for each in clusters]
    document = bootstrap(listeners=listeners, clusters=messages, routes=routes, endpoints=endpoints)
    if change is not None:
        change(document)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "bootstrap.pb")
        file.write_bytes(document.SerializeToString())
        process = await asyncio.create_subprocess_exec(
            *(str(binary.find()), "--config-path", str(file), "--disable-hot-restart", "--concurrency", "1"),
            *("--log-level", "warning", "--file-flush-interval-msec", "20"),
        )
        try:
            for port in listening:
                await _listening(port, process)
            yield
        finally:
            process.terminate()
            await process.wait()


async def _listening(port, process):
    while True:
        assert process.returncode is None, "Envoy did not start"
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return


@contextlib.asynccontextmanager
async def app(handle):
    """A server of raw bytes on a free port of loopback."""
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
