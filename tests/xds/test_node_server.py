"""Agents' streams over real gRPC: which callers are admitted, and that a broken stream does not affect others."""

import asyncio
import contextlib
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from eventually import eventually
from node_rig import Control
from weft.xds import frames, node_server
from weft.xds.access import Unauthenticated
from weft.xds.node_server import NodeServer
from weft.xds.request import StreamRefused
from weft.xds.types import CLUSTER


class Strict(Control):
    def admit(self, node, principal):
        if node != principal:
            raise StreamRefused(f"{principal} asks for {node}")
        return node


@asynccontextmanager
async def serving(tmp_path, control, **more):
    async def authenticate(_peer, token):
        if not token:
            raise Unauthenticated("who are you?")
        return token

    nodes = NodeServer(control.snapshots, control, **more)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((nodes.handlers(authenticate),))
    server.add_insecure_port(f"unix:{tmp_path}/nodes.sock")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"unix:{tmp_path}/nodes.sock") as channel:
            yield nodes, channel
    finally:
        await server.stop(None)


def call(channel, token="node-1"):
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    return channel.stream_stream(f"/{frames.SERVICE}/{frames.METHOD}")(metadata=metadata)


async def read(stream):
    async with asyncio.timeout(30):
        return frames.decode_update(await stream.read())


async def test_an_agent_gets_its_pods_groups_and_its_bytes_are_counted(tmp_path):
    control = Strict({"web-0": "web"})
    control.put("web", CLUSTER, a="1")
    async with serving(tmp_path, control) as (nodes, channel):
        stream = call(channel)
        await stream.write(frames.encode(frames.Hello("node-1", ("web-0",))))
        update = await read(stream)
        assert update.placements == {"web-0": "web"} and update.resumed
        (status,) = nodes.nodes()
        assert (status.node, status.pods, status.groups) == ("node-1", 1, ("web",))
        assert status.bytes_sent == len(frames.encode(update)) and not status.settled
        await stream.write(frames.encode(frames.TakenFrame(update.nonce)))
        control.put("web", CLUSTER, a="2")
        assert (await read(stream)).groups[0].upserts[CLUSTER][0].version == "2"
        stream.cancel()
        await eventually(lambda: not nodes.nodes())
        assert control.held == {} and not control._told


@pytest.mark.parametrize(
    ("token", "first", "code"),
    [
        ("", frames.encode(frames.Hello("node-1")), grpc.StatusCode.UNAUTHENTICATED),
        ("node-2", frames.encode(frames.Hello("node-1")), grpc.StatusCode.PERMISSION_DENIED),
        ("node-1", frames.encode(frames.TakenFrame(1)), grpc.StatusCode.INVALID_ARGUMENT),
        ("node-1", b"\xc1", grpc.StatusCode.INVALID_ARGUMENT),
    ],
    ids=["nobody", "another node", "no hello", "garbage"],
)
async def test_rejects_callers_that_are_not_an_agent_or_do_not_send_its_messages(tmp_path, token, first, code):
    async with serving(tmp_path, Strict({})) as (nodes, channel):
        stream = call(channel, token)
        with contextlib.suppress(grpc.aio.AioRpcError):  # the stream may have been rejected by then
            await stream.write(first)
        async with asyncio.timeout(30):
            assert await stream.code() is code
        assert nodes.nodes() == []


async def test_garbage_later_ends_that_stream_and_no_other(tmp_path):
    control = Strict({"web-0": "web"})
    control.put("web", CLUSTER, a="1")
    async with serving(tmp_path, control) as (_, channel):
        good, bad = call(channel), call(channel, "node-2")
        await good.write(frames.encode(frames.Hello("node-1", ("web-0",))))
        await bad.write(frames.encode(frames.Hello("node-2")))
        update = await read(good)
        await read(bad)
        await bad.write(b"\xc1")
        async with asyncio.timeout(30):
            assert await bad.code() is grpc.StatusCode.INVALID_ARGUMENT
        await good.write(frames.encode(frames.TakenFrame(update.nonce)))
        control.put("web", CLUSTER, a="2")
        assert (await read(good)).groups


async def test_placements_that_become_known_are_sent(tmp_path):
    control = Strict(None)
    control.put("web", CLUSTER, a="1")
    async with serving(tmp_path, control) as (nodes, channel):
        stream = call(channel)
        await stream.write(frames.encode(frames.Hello("node-1", ("web-0",))))
        await eventually(nodes.nodes)
        control.placed = {"web-0": "web"}
        nodes.wake()
        assert (await read(stream)).placements == {"web-0": "web"}
        assert nodes.proxies() == []


async def test_the_number_of_streams_per_node_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(node_server, "STREAMS", 2)
    async with serving(tmp_path, Strict({})) as (nodes, channel):
        streams = [call(channel) for _ in range(2)]
        for stream in streams:
            await stream.write(frames.encode(frames.Hello("node-1")))
            await read(stream)
        third, other = call(channel), call(channel, "node-2")
        await third.write(frames.encode(frames.Hello("node-1")))
        await other.write(frames.encode(frames.Hello("node-2")))
        async with asyncio.timeout(30):
            assert await third.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await read(other)
        assert sorted(each.node for each in nodes.nodes()) == ["node-1", "node-1", "node-2"]


async def test_nodes_that_connect_together_get_their_config_a_few_at_a_time_and_slow_ones_delay_no_other(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(node_server, "ARRIVALS", 1)
    monkeypatch.setattr(node_server, "ARRIVAL_SECONDS", 5.0)
    control = Strict({"web-0": "web"})
    control.put("web", CLUSTER, a="1")
    async with serving(tmp_path, control) as (nodes, channel):
        first, second, third = (call(channel, f"node-{number}") for number in range(3))
        await first.write(frames.encode(frames.Hello("node-0", ("web-0",))))
        update = await read(first)
        await second.write(frames.encode(frames.Hello("node-1", ("web-0",))))
        await eventually(lambda: len(nodes.nodes()) >= 2)
        assert all(each.bytes_sent == 0 for each in nodes.nodes() if each.node == "node-1")
        await first.write(frames.encode(frames.TakenFrame(update.nonce)))
        await read(second)
        await third.write(frames.encode(frames.Hello("node-2", ("web-0",))))
        control.put("web", CLUSTER, a="2")
        assert (await read(first)).groups  # an agent that has everything does not wait for new agents
        await read(third)


async def test_proxies_are_reported_by_the_servers_clock(tmp_path):
    control = Strict({"web-0": "web"})
    control.put("web", CLUSTER, a="1")
    async with serving(tmp_path, control, clock=lambda: 42.0) as (nodes, channel):
        stream = call(channel)
        await stream.write(frames.encode(frames.Hello("node-1", ("web-0",))))
        await read(stream)
        proxy = frames.ProxyFrame(1, "web-0", "web")
        await stream.write(frames.encode(frames.ReportFrame(proxies=(proxy,))))
        await eventually(lambda: [each.since for each in nodes.proxies()] == [42.0])
