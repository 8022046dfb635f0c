"""gRPC's own xDS client, in a process of its own, calls a service through this control plane."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import grpc
import pytest
from resources import api_listener, by_name, cluster, endpoints, route

from eventually import eventually
from weft.xds.server import XdsServer
from weft.xds.snapshot import Snapshots
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, ROUTE

# Calls once per line read, so that the test decides when.
CALLER = """
import sys, grpc
with grpc.insecure_channel("xds:///svc:80") as channel:
    call = channel.unary_unary("/demo.Greeter/Hello")
    for line in sys.stdin:
        try:
            print(call(line.strip().encode(), timeout=20).decode(), flush=True)
        except grpc.RpcError as error:
            print(error.code().name, *error.details().split(), flush=True)
"""


class Observer:
    def __init__(self) -> None:
        self.nodes = []
        self.nacks = []

    def join(self, stream_id, node, peer):
        self.nodes.append(node)
        return "callers"

    def nacked(self, stream_id, type_url, nonce, message):
        self.nacks.append((type_url, message))

    def on_nack(self, resource): ...
    def wanted(self, stream_id, names, had): ...
    def leave(self, stream_id): ...
    def acked(self, stream_id, type_url, nonce): ...


class Caller:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def until(self, answer: str) -> None:
        """Call until the output contains `answer`: a client acknowledges a change before its calls use it."""
        await eventually(lambda: self.call("ann"), lambda value: answer in value)

    async def call(self, name: str) -> str:
        self.process.stdin.write(f"{name}\n".encode())
        async with asyncio.timeout(30):
            return (await self.process.stdout.readline()).decode().strip()


async def greeter(greeting: str) -> tuple[grpc.aio.Server, int]:
    async def hello(request: bytes, context) -> bytes:
        return greeting.encode() + b", " + request

    server = grpc.aio.server()
    handlers = {"Hello": grpc.unary_unary_rpc_method_handler(hello)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("demo.Greeter", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


@pytest.fixture
def snapshots() -> Snapshots:
    return Snapshots()


@pytest.fixture
def observer() -> Observer:
    return Observer()


@pytest.fixture
async def server(snapshots, observer):
    server = XdsServer(snapshots, observer)
    yield server
    await server.close()


@pytest.fixture
async def caller(server, tmp_path):
    address = await server.listen("127.0.0.1:0")
    bootstrap = {
        "xds_servers": [
            {"server_uri": address, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
        ],
        "node": {"id": "caller-1", "metadata": {"team": "shop"}},
    }
    (tmp_path / "bootstrap.json").write_text(json.dumps(bootstrap))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CALLER,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "GRPC_XDS_BOOTSTRAP": str(tmp_path / "bootstrap.json")},
    )
    yield Caller(process)
    if process.returncode is None:
        process.kill()
    await process.wait()


async def test_a_grpc_client_finds_a_service_and_follows_it(snapshots, observer, server, caller):
    first, first_port = await greeter("hello")
    second, second_port = await greeter("good day")
    try:
        # The snapshot also contains resources that the client does not subscribe to and must not get.
        snapshots.replace(
            "callers",
            {
                LISTENER: by_name(api_listener("svc:80", "svc"), api_listener("other:80", "other")),
                ROUTE: by_name(route("svc", "one")),
                CLUSTER: by_name(cluster("one"), cluster("unrelated")),
                ENDPOINT: by_name(endpoints("one", first_port)),
            },
        )
        assert await caller.call("ann") == "hello, ann"
        assert (observer.nodes[0].id, observer.nodes[0].metadata["team"]) == ("caller-1", "shop")
        assert {each.names for each in server.streams()[0].types.values()} == {1}

        snapshots.update("callers", {ENDPOINT: by_name(endpoints("one", second_port))})
        await caller.until("good day, ann")

        # Listener, routes, cluster and endpoints are replaced, and the old ones are removed in the same update.
        snapshots.replace(
            "callers",
            {
                LISTENER: by_name(api_listener("svc:80", "svc")),
                ROUTE: by_name(route("svc", "two")),
                CLUSTER: by_name(cluster("two")),
                ENDPOINT: by_name(endpoints("two", first_port)),
            },
        )
        await caller.until("hello, ann")
        every = frozenset({LISTENER, ROUTE, CLUSTER, ENDPOINT})
        assert await server.wait_synced("caller-1", 20, every), server.streams()

        snapshots.update("callers", {LISTENER: {"svc:80": None}})
        await caller.until("LDS resource svc:80: does not exist")
        assert observer.nacks == []
    finally:
        await first.stop(None)
        await second.stop(None)
