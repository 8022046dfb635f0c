"""Debug requests on a stream, with and without a debugger."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.any_pb2 import Any as AnyMessage

from weft.xds.debug import is_question
from weft.xds.request import StreamRefused, XdsRequest
from weft.xds.server import XdsServer
from weft.xds.snapshot import Snapshots
from weft.xds.types import CLUSTER

PREFIX = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"


class Nobody:
    """An observer that fails if a stream joins: none of these streams is a proxy's."""

    def join(self, stream_id, node, peer):
        raise AssertionError("a question joins no group")

    def leave(self, stream_id): ...


class Debugger:
    identifier = "me"

    def __init__(self, admits=True):
        self.admits, self.asked = admits, []

    def admit(self, peer):
        if not self.admits:
            raise StreamRefused("not you")

    async def answer(self, type_url, names):
        self.asked.append((type_url, names))
        if "bad" in names:
            raise StreamRefused("no such thing")
        return [AnyMessage(type_url="x", value=type_url.encode())]


@pytest.fixture
async def rig(tmp_path):
    server = XdsServer(Snapshots(), Nobody())
    server.debugger = Debugger()
    address = await server.listen(f"unix:{tmp_path}/xds.sock")
    async with grpc.aio.insecure_channel(address) as channel:
        yield server, channel
    await server.close()


class Asker:
    def __init__(self, channel, *, delta=False):
        self._request = discovery_pb2.DeltaDiscoveryRequest if delta else discovery_pb2.DiscoveryRequest
        self._call = channel.stream_stream(
            PREFIX + ("DeltaAggregatedResources" if delta else "StreamAggregatedResources"),
            request_serializer=self._request.SerializeToString,
            response_deserializer=discovery_pb2.DiscoveryResponse.FromString,
        )()

    async def ask(self, type_url, *names, nonce=""):
        request = self._request(type_url=type_url, response_nonce=nonce)
        if names:
            request.resource_names.extend(names)
        request.node.id = "me"
        await self._call.write(request)

    async def read(self):
        async with asyncio.timeout(30):
            return await self._call.read()

    async def code(self):
        async with asyncio.timeout(30):
            return await self._call.code()


@pytest.mark.parametrize(
    ("type_url", "is_one"),
    [
        ("istio.io/debug", True),
        ("istio.io/debug/syncz", True),
        ("istio.io/debugger", False),
        (CLUSTER, False),
    ],
)
def test_a_debug_request_is_recognized_by_its_type(type_url, is_one):
    assert is_question(XdsRequest(type_url)) is is_one


async def test_an_ack_of_a_debug_response_gets_no_response_and_another_request_does(rig):
    server, channel = rig
    asker = Asker(channel)
    await asker.ask("istio.io/debug/syncz", nonce="something")
    first = await asker.read()
    assert (first.type_url, first.nonce, first.control_plane.identifier) == ("istio.io/debug/syncz", "1", "me")
    await asker.ask("istio.io/debug/syncz", nonce=first.nonce)
    await asker.ask("istio.io/debug/adsz", "one", nonce="")
    assert (await asker.read()).resources[0].value == b"istio.io/debug/adsz"
    assert server.debugger.asked == [("istio.io/debug/syncz", ()), ("istio.io/debug/adsz", ("one",))]
    assert server.streams() == []


async def test_without_a_debugger_every_debug_request_is_rejected(rig):
    server, channel = rig
    server.debugger = None
    asker = Asker(channel)
    await asker.ask("istio.io/debug/syncz")
    assert await asker.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_caller_that_is_not_authorized_gets_no_debug_response(rig):
    server, channel = rig
    server.debugger = Debugger(admits=False)
    for delta in (False, True):
        asker = Asker(channel, delta=delta)
        await asker.ask("istio.io/debug/syncz")
        assert await asker.code() is grpc.StatusCode.PERMISSION_DENIED
    assert server.debugger.asked == []


async def test_an_unknown_debug_request_ends_the_stream(rig):
    _, channel = rig
    asker = Asker(channel)
    await asker.ask("istio.io/debug/syncz", "bad")
    assert await asker.code() is grpc.StatusCode.INVALID_ARGUMENT
    delta = Asker(channel, delta=True)
    await delta.ask("istio.io/debug/syncz")
    assert await delta.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_stream_of_debug_requests_gets_no_config(rig):
    _, channel = rig
    asker = Asker(channel)
    await asker.ask("istio.io/debug/syncz")
    await asker.read()
    await asker.ask(CLUSTER)
    assert await asker.code() is grpc.StatusCode.INVALID_ARGUMENT
