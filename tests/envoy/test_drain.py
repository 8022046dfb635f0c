"""A real Envoy with an inbound listener, and clients with requests in flight when the drain begins."""

import asyncio
import contextlib
import json
import threading
import time

import pytest

from eventually import eventually
from weft.envoy import binary, command
from weft.envoy.bootstrap import Bootstrap, BootstrapNode, Unix
from weft.envoy.drain import Active, drain, wait_until_ready
from weft.model.proxy import PROXY_GID, PROXY_UID
from weft.netns import namespace as netns
from weft.netns.process import Spawn, end, spawn
from weft.netns.view import View

pytestmark = pytest.mark.root

HTTP, TCP, APP = 15006, 15106, 8080
TYPES = "type.googleapis.com"


def listener(name, port, network_filter):
    return {
        "name": name,
        "traffic_direction": "INBOUND",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [network_filter]}],
    }


LISTENERS = [
    listener(
        "http",
        HTTP,
        {
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": f"{TYPES}/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": "inbound_0.0.0.0_15006",
                "http_filters": [
                    {
                        "name": "envoy.filters.http.router",
                        "typed_config": {"@type": f"{TYPES}/envoy.extensions.filters.http.router.v3.Router"},
                    }
                ],
                "route_config": {
                    "virtual_hosts": [
                        {
                            "name": "all",
                            "domains": ["*"],
                            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "app", "timeout": "0s"}}],
                        }
                    ]
                },
            },
        },
    ),
    listener(
        "tcp",
        TCP,
        {
            "name": "envoy.filters.network.tcp_proxy",
            "typed_config": {
                "@type": f"{TYPES}/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
                "stat_prefix": "inbound",
                "cluster": "app",
            },
        },
    ),
]
CLUSTER = {
    "name": "app",
    "type": "STATIC",
    "connect_timeout": "1s",
    "load_assignment": {
        "cluster_name": "app",
        "endpoints": [
            {
                "lb_endpoints": [
                    {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": APP}}}}
                ]
            }
        ],
    },
}


class Pod:
    """The content of the pod: an app that answers when the test allows it, and clients."""

    def __init__(self, namespace, cleanup):
        self.namespace = namespace
        self.answer = asyncio.Event()
        self._cleanup = cleanup

    async def serve(self):
        made = netns.socket_in(self.namespace)
        made.bind(("127.0.0.1", APP))
        server = await asyncio.start_server(self._handle, sock=made)
        self._cleanup.callback(server.close)

    async def _handle(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if b" /slow " in head:
                    await self.answer.wait()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        writer.close()

    async def connect(self, port):
        made = netns.socket_in(self.namespace)
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=made)
        self._cleanup.callback(writer.close)
        return reader, writer

    async def draining(self, **options):
        """Start a drain. Return its task once Envoy has received the request."""
        said = []
        task = asyncio.create_task(
            asyncio.to_thread(netns.run_in, self.namespace, lambda: drain(tell=said.append, **options))
        )
        self._cleanup.callback(task.cancel)
        return task, said


async def ask(reader, writer, path="/"):
    writer.write(f"GET {path} HTTP/1.1\r\nhost: app\r\n\r\n".encode())
    return await heard(reader)


async def heard(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    assert await reader.readexactly(2) == b"ok"
    return head


@pytest.fixture
async def pod(namespace, pod_directory, control_plane):
    node = BootstrapNode(name="web-0", namespace="shop", addresses=("127.0.0.1",))
    bootstrap = Bootstrap(node=node, xds=Unix(control_plane[0]), status_port=15020)
    prepared = command.prepare(bootstrap, binary.find(), pod_directory, drain_seconds=45)
    file = pod_directory / command.BOOTSTRAP_FILE
    document = json.loads(file.read_text())
    document["static_resources"]["listeners"] += LISTENERS
    document["static_resources"]["clusters"].append(CLUSTER)
    file.write_text(json.dumps(document))
    async with contextlib.AsyncExitStack() as cleanup:
        process = await spawn(
            Spawn(
                argv=prepared.argv,
                environment=prepared.environment,
                working_directory=prepared.working_directory,
                view=View(visible=prepared.visible),
                namespace=namespace,
                uid=PROXY_UID,
                gid=PROXY_GID,
            )
        )
        cleanup.push_async_callback(end, process)
        made = Pod(namespace, cleanup)
        await made.serve()
        assert await asyncio.to_thread(netns.run_in, namespace, lambda: wait_until_ready(most=20)) == ""
        yield made


async def test_a_drain_waits_for_the_response_of_a_request_in_flight(pod):
    reader, writer = await pod.connect(HTTP)
    writer.write(b"GET /slow HTTP/1.1\r\nhost: app\r\n\r\n")
    task, said = await pod.draining(least=0.1)
    await eventually(lambda: said)
    assert said == ["waiting for 1 requests, 0 other streams, 1 connections"]
    assert not task.done()
    pod.answer.set()
    assert "connection: close" in await heard(reader)
    await asyncio.wait_for(task, 30)


async def test_a_draining_proxy_serves_requests_and_asks_callers_to_close_their_connection(pod):
    reader, writer = await pod.connect(HTTP)
    assert "connection: close" not in await ask(reader, writer)
    task, _ = await pod.draining(least=2.0)
    await eventually(lambda: ask(reader, writer), lambda value: "connection: close" in value)
    # A client that has not been notified yet can still connect.
    assert "200 ok" in await ask(*(await pod.connect(HTTP)))
    assert not task.done()
    await asyncio.wait_for(task, 30)


async def test_a_drain_takes_the_minimum_time_even_without_traffic(pod):
    began = time.monotonic()
    task, said = await pod.draining(least=0.5)
    await asyncio.wait_for(task, 30)
    assert time.monotonic() - began >= 0.5
    assert said == []


async def test_an_open_stream_of_another_protocol_is_waited_for(pod):
    reader, writer = await pod.connect(TCP)
    assert "200 ok" in await ask(reader, writer)
    task, said = await pod.draining(least=0.0)
    await eventually(lambda: said)
    assert said == ["waiting for 0 requests, 1 other streams, 1 connections"]
    writer.close()
    await asyncio.wait_for(task, 30)


async def test_an_idle_connection_is_waited_for_only_if_that_is_wanted(pod):
    reader, writer = await pod.connect(HTTP)
    await ask(reader, writer)
    task, _ = await pod.draining(least=0.0)
    await asyncio.wait_for(task, 30)
    task, said = await pod.draining(least=0.0, until_idle=True)
    await eventually(lambda: said)
    assert said == ["waiting for 0 requests, 0 other streams, 1 connections"]
    writer.close()
    await asyncio.wait_for(task, 30)


async def test_a_drain_does_not_wait_for_kubelet_and_prometheus(pod):
    for port, path in ((15021, "/healthz/ready"), (15020, "/stats/prometheus"), (15090, "/stats/prometheus")):
        reader, writer = await pod.connect(port)
        writer.write(f"GET {path} HTTP/1.1\r\nhost: app\r\n\r\n".encode())
        assert b"200" in await reader.readuntil(b"\r\n")
    task, said = await pod.draining(least=0.0, until_idle=True)
    await asyncio.wait_for(task, 30)
    assert said == []
    # Probes are still answered.
    reader, writer = await pod.connect(15021)
    writer.write(b"GET /healthz/ready HTTP/1.1\r\nhost: app\r\n\r\n")
    assert b"200" in await reader.readuntil(b"\r\n")


def test_where_there_is_no_envoy_there_is_nothing_to_wait_for(namespace):
    said = []
    began = time.monotonic()
    netns.run_in(namespace, lambda: drain(least=30.0, tell=said.append))
    assert time.monotonic() - began < 20
    assert "does not answer" in said[0]
    assert "does not answer" in netns.run_in(namespace, lambda: wait_until_ready(most=0.1))


def test_an_invalid_admin_response_ends_the_drain(namespace):
    serving = netns.socket_in(namespace)
    serving.setblocking(True)
    serving.bind(("127.0.0.1", 15000))
    serving.listen()

    def answer():
        for _ in range(2):
            connection, _ = serving.accept()
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]")
            connection.close()

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    said = []
    netns.run_in(namespace, lambda: drain(least=0.0, tell=said.append))
    assert "unknown form" in said[0]
    thread.join(5)
    serving.close()


def test_the_gauges_show_what_is_in_flight():
    active = Active(
        {
            "listener.0.0.0.0_15006.downstream_cx_active": 5,
            "listener.0.0.0.0_15006.worker_0.downstream_cx_active": 5,
            "listener.10.0.0.1_80.downstream_cx_active": 1,
            "listener.0.0.0.0_15021.downstream_cx_active": 2,
            "listener.admin.downstream_cx_active": 1,
            "http.inbound_0.0.0.0_80.downstream_cx_active": 3,
            "http.inbound_0.0.0.0_80.downstream_rq_active": 2,
            "http.own-admin.downstream_cx_active": 2,
            "http.own-admin.downstream_rq_active": 2,
            "http.admin.downstream_cx_active": 1,
            "http.admin.downstream_rq_active": 1,
        }
    )
    assert (active.requests, active.streams, active.connections) == (2, 3, 6)


async def test_a_wait_in_vain_returns_the_state_that_envoy_reported(start_envoy, namespace, tmp_path):
    await start_envoy(str(tmp_path / "nobody"))
    said = ""
    async with asyncio.timeout(20):
        while "503" not in said:  # the admin API answers a moment after Envoy's start
            said = await asyncio.to_thread(netns.run_in, namespace, lambda: wait_until_ready(most=0))
    assert "INITIALIZING" in said
