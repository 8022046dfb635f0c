"""gRPC's own xDS client against the real control plane: no Envoy, the client is its own proxy. It follows a service
on loopback from one server to another, so an independent client reads both the first response and a later push."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import grpc
import pytest

from e2e.objects import destination_rule, istio, text, to
from eventually import eventually
from weft.control.plane import ControlPlane
from weft.files.directory import Directory

CLIENT = """
import sys, grpc
channel = grpc.insecure_channel(sys.argv[1])
call = channel.unary_unary("/e2e.Greeter/Greet")
for line in sys.stdin:
    try:
        print("ok", call(line.strip().encode(), timeout=float(sys.argv[2]), wait_for_ready=True).decode(), flush=True)
    except grpc.RpcError as error:
        print("failed", error.code().name, error.details(), flush=True)
"""


class Greeter:
    """A plain gRPC server that returns its name."""

    def __init__(self, name: str) -> None:
        self.name, self.server = name, grpc.aio.server()
        method = grpc.unary_unary_rpc_method_handler(self.greet)
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("e2e.Greeter", {"Greet": method})])
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    async def greet(self, request, context):
        return f"{self.name} greets {request.decode()}".encode()


class Client:
    """A separate process: gRPC reads its bootstrap once, when it is imported."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def greet(self, word: str) -> str:
        self.process.stdin.write(word.encode() + b"\n")
        await self.process.stdin.drain()
        return (await asyncio.wait_for(self.process.stdout.readline(), 40)).decode().strip()


@pytest.fixture
async def greeters():
    both = Greeter("v1"), Greeter("v2")
    for greeter in both:
        await greeter.server.start()
    yield both
    for greeter in both:
        await greeter.server.stop(None)


@pytest.fixture
async def plane():
    plane = ControlPlane()
    yield plane
    await plane.close()


@pytest.fixture
async def client(plane, tmp_path):
    address = await plane.listen("127.0.0.1:0")
    bootstrap = {
        "xds_servers": [
            {"server_uri": address, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
        ],
        "node": {"id": "sidecar~127.0.0.1~caller.shop~shop.svc.cluster.local",
                 "metadata": {"GENERATOR": "grpc", "NAMESPACE": "shop", "LABELS": {"app": "caller"}}},
    }  # fmt: skip
    (tmp_path / "bootstrap.json").write_text(json.dumps(bootstrap))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CLIENT, "xds:///greeter.shop.svc.cluster.local:50051", "20"),
        env={**os.environ, "GRPC_XDS_BOOTSTRAP": str(tmp_path / "bootstrap.json")},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    yield Client(process)
    process.kill()
    await process.wait()


def apply(plane: ControlPlane, directory: Directory, *documents) -> None:
    changes = directory.apply({"greeter.yaml": text(*documents).encode()})
    plane.apply([*changes, *directory.settle(directory.leaving)], directory.problems())
    assert plane.problems() == ()


def entries(*greeters: Greeter):
    yield istio(
        "ServiceEntry",
        "greeter",
        {
            "hosts": ["greeter.shop.svc.cluster.local"],
            "location": "MESH_INTERNAL",
            "resolution": "STATIC",
            "ports": [{"number": 50051, "name": "grpc", "protocol": "GRPC"}],
            "workloadSelector": {"labels": {"app": "greeter"}},
        },
    )
    for greeter in greeters:
        spec = {
            "address": "127.0.0.1",
            "labels": {"app": "greeter", "version": greeter.name},
            "ports": {"grpc": greeter.port},
        }
        yield istio("WorkloadEntry", f"greeter-{greeter.name}", spec)


async def test_grpcs_own_xds_client_calls_a_service(plane, client, greeters):
    apply(plane, Directory(), *entries(greeters[0]))
    assert await client.greet("world") == "ok v1 greets world"


async def test_it_waits_for_a_control_plane_that_knows_nothing_yet(plane, client, greeters):
    asking = asyncio.create_task(client.greet("world"))
    await eventually(lambda: plane.proxies())
    apply(plane, Directory(), *entries(greeters[0]))
    assert await asking == "ok v1 greets world"


async def test_it_follows_endpoints_as_they_change(plane, client, greeters):
    directory = Directory()
    apply(plane, directory, *entries(greeters[0]))
    assert await client.greet("a") == "ok v1 greets a"
    apply(plane, directory, *entries(greeters[1]))

    async def moved():
        return await client.greet("b") == "ok v2 greets b"

    await eventually(moved)


async def test_it_follows_routes_to_subsets(plane, client, greeters):
    host, directory = "greeter.shop.svc.cluster.local", Directory()
    for version in ("v2", "v1"):
        rule = destination_rule("greeter", "v1", "v2")
        route = istio("VirtualService", "greeter", {"hosts": [host], "http": [{"route": [to(host, version)]}]})
        apply(plane, directory, *entries(*greeters), rule, route)

        async def arrived(version=version):
            return await client.greet("x") == f"ok {version} greets x"

        await eventually(arrived)
        assert {await client.greet("y") for _ in range(10)} == {f"ok {version} greets y"}


async def test_it_accepts_everything_it_is_sent(plane, client, greeters):
    apply(plane, Directory(), *entries(*greeters))
    await client.greet("world")
    (proxy,) = await eventually(lambda: [each for each in plane.proxies() if each.sync.value == "SYNCED"])
    assert proxy.errors == ()
