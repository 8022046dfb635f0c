"""The server over real sockets, with clients that behave and clients that do not."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from conversation import blobs, small_shop
from envoy.service.discovery.v3 import discovery_pb2

from eventually import eventually
from weft.xds import request as limits
from weft.xds.clients import Sync
from weft.xds.request import StreamRefused
from weft.xds.response import Dialect
from weft.xds.server import SECRET_SERVICE, ListenError, XdsServer
from weft.xds.snapshot import Snapshots
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, SECRET

METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"


class Observer:
    def __init__(self) -> None:
        self.joined, self.left, self.acks, self.nacks, self.culprits, self.wants = [], [], [], [], [], []

    def join(self, stream_id, node, peer):
        if node.id == "stranger":
            raise StreamRefused("no token")
        self.joined.append((node, peer))
        return node.cluster

    def leave(self, stream_id):
        self.left.append(stream_id)

    def acked(self, stream_id, type_url, nonce):
        self.acks.append((stream_id, type_url, nonce))

    def nacked(self, stream_id, type_url, nonce, message):
        self.nacks.append((stream_id, type_url, nonce, message))

    def wanted(self, stream_id, names, had):
        self.wants.append((stream_id, names, had))

    def on_nack(self, resource):
        self.culprits.append(resource)


class Client:
    """A delta client on a real connection. It sends its node once."""

    def __init__(self, address: str, node_id: str = "pod-1") -> None:
        self.channel = grpc.aio.insecure_channel(address)
        self.call = self.channel.stream_stream(METHOD + "DeltaAggregatedResources")()
        self.node_id = node_id

    async def send(self, type_url: str, **fields) -> None:
        request = discovery_pb2.DeltaDiscoveryRequest(type_url=type_url, **fields)
        if self.node_id:
            request.node.id, request.node.cluster, self.node_id = self.node_id, "shop", ""
        await self.call.write(request.SerializeToString())

    async def receive(self) -> discovery_pb2.DeltaDiscoveryResponse:
        async with asyncio.timeout(30):
            return discovery_pb2.DeltaDiscoveryResponse.FromString(await self.call.read())

    async def ack(self, response) -> None:
        await self.send(response.type_url, response_nonce=response.nonce)

    async def take(self) -> list[str]:
        response = await self.receive()
        await self.ack(response)
        return [resource.name for resource in response.resources]

    async def close(self) -> None:
        self.call.cancel()
        await self.channel.close()


@pytest.fixture
def snapshots() -> Snapshots:
    snapshots = Snapshots()
    snapshots.replace("shop", {CLUSTER: blobs("a", "b"), LISTENER: blobs("l")})
    return snapshots


@pytest.fixture
def observer() -> Observer:
    return Observer()


@pytest.fixture
async def server(snapshots, observer):
    server = XdsServer(snapshots, observer)
    yield server
    await server.close()


@pytest.fixture
async def address(server, tmp_path):
    return await server.listen(f"unix:{tmp_path}/xds.sock")


@pytest.fixture
async def client(address):
    client = Client(address)
    yield client
    await client.close()


async def test_serves_on_several_addresses_and_reports_which_one_a_client_used(server, observer, tmp_path):
    addresses = [await server.listen(f"unix:{tmp_path}/xds.sock"), await server.listen("127.0.0.1:0")]
    assert not addresses[1].endswith(":0")
    for address in addresses:
        client = Client(address)
        await client.send(CLUSTER)
        assert await client.take() == ["a", "b"]
        await client.close()
    assert [peer.listener for _, peer in observer.joined] == addresses


async def test_the_limit_of_streams_is_per_address(snapshots, observer, tmp_path):
    server = XdsServer(snapshots, observer, most_streams=2)
    first, other = [await server.listen(f"unix:{tmp_path}/{name}.sock") for name in ("first", "other")]
    silent = Client(first)
    await silent.call.wait_for_connection()
    speaking = Client(first)
    await speaking.send(CLUSTER)
    assert await speaking.take() == ["a", "b"]
    late, elsewhere = Client(first), Client(other)
    async with asyncio.timeout(30):
        assert await late.call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await elsewhere.send(CLUSTER)
    assert await elsewhere.take() == ["a", "b"]
    await silent.close()
    await eventually(lambda: server._open[first] == 1)
    again = Client(first)
    await again.send(CLUSTER)
    assert await again.take() == ["a", "b"]
    for each in (speaking, late, elsewhere, again):
        await each.close()
    await eventually(lambda: not +server._open)
    await server.close()


async def test_an_address_that_is_taken_is_an_error(server, address):
    tcp = await server.listen("127.0.0.1:0")
    with pytest.raises(ListenError, match=tcp):
        await server.listen(tcp)
    with pytest.raises(ListenError, match="directory is missing"):
        await server.listen("unix:/nonexistent/xds.sock")


async def test_one_address_can_be_closed_while_others_are_served(server, address, tmp_path, client):
    other = await server.listen(f"unix:{tmp_path}/other.sock")
    leaving = Client(other)
    for each in (client, leaving):
        await each.send(CLUSTER)
        await each.take()
    await server.stop(other)
    await eventually(lambda: len(server.streams()) == 1)
    await client.send(LISTENER)
    assert await client.take() == ["l"]
    await leaving.close()


async def test_headers_come_at_once(client):
    async with asyncio.timeout(30):
        await client.call.initial_metadata()


async def test_serves_state_of_the_world_too(address):
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(METHOD + "StreamAggregatedResources")()
        request = discovery_pb2.DiscoveryRequest(type_url=CLUSTER)
        request.node.id, request.node.cluster = "pod-1", "shop"
        await call.write(request.SerializeToString())
        response = discovery_pb2.DiscoveryResponse.FromString(await call.read())
        assert [resource.value for resource in response.resources] == [b"a@1", b"b@1"]
        call.cancel()


async def test_a_change_reaches_the_clients_of_its_group(snapshots, client):
    await client.send(CLUSTER)
    await client.take()
    snapshots.update("shop", {CLUSTER: blobs("a", version="2")})
    assert await client.take() == ["a"]


async def test_the_observer_is_notified_of_acks_nacks_and_disconnects(snapshots, observer, client):
    await client.send(CLUSTER)
    response = await client.receive()
    await client.ack(response)
    await eventually(lambda: observer.acks == [(1, CLUSTER, response.nonce)])
    snapshots.update("shop", {CLUSTER: blobs("a", version="bad")})
    response = await client.receive()
    await client.send(CLUSTER, response_nonce=response.nonce, error_detail={"message": "no such field"})
    await eventually(lambda: observer.culprits)
    assert observer.nacks == [(1, CLUSTER, response.nonce, "no such field")]
    (culprit,) = observer.culprits
    assert (culprit.name, culprit.version, culprit.node_id) == ("a", "bad", "pod-1")
    await client.close()
    await eventually(lambda: observer.left == [1])


async def test_an_observer_that_fails_ends_no_stream(snapshots, observer, client):
    def fail(*_):
        raise RuntimeError("a fault of the observer")

    observer.acked = fail
    await client.send(CLUSTER)
    await client.take()
    snapshots.update("shop", {CLUSTER: blobs("a", version="2")})
    assert await client.take() == ["a"]


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"\xff\xff garbage", grpc.StatusCode.INVALID_ARGUMENT),
        (discovery_pb2.DeltaDiscoveryRequest(type_url=CLUSTER).SerializeToString(), grpc.StatusCode.INVALID_ARGUMENT),
        (
            discovery_pb2.DeltaDiscoveryRequest(type_url=CLUSTER, node={"id": "stranger"}).SerializeToString(),
            grpc.StatusCode.PERMISSION_DENIED,
        ),
        (b"x" * (limits.REQUEST_BYTES + 1), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
    ids=["garbage", "nobody", "a stranger", "too large"],
)
async def test_a_bad_first_message_ends_that_stream_and_no_other(address, client, payload, code):
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(METHOD + "DeltaAggregatedResources")()
        await call.write(payload)
        assert await call.code() == code
    await client.send(CLUSTER)
    assert await client.take() == ["a", "b"]


async def test_garbage_later_on_ends_that_stream_and_no_other(server, address, client):
    other = Client(address, "pod-2")
    for each in (client, other):
        await each.send(CLUSTER)
        await each.take()
    await other.call.write(b"\xff\xff garbage")
    assert await other.call.code() == grpc.StatusCode.INVALID_ARGUMENT
    await eventually(lambda: [status.node.id for status in server.streams()] == ["pod-1"])
    await client.send(LISTENER)
    assert await client.take() == ["l"]
    await other.close()


async def test_a_client_that_never_acknowledges_delays_no_other(snapshots, address, client):
    silent = Client(address, "silent")
    await silent.send(CLUSTER)
    await silent.receive()
    await client.send(CLUSTER)
    await client.take()
    for version in "2345":
        snapshots.update("shop", {CLUSTER: blobs("a", version=version)})
        assert await client.take() == ["a"]
    await silent.close()


async def test_clients_that_come_and_go_at_any_moment_leave_nothing_behind(
    snapshots, server, observer, address, client, caplog
):
    async def come_and_go(number: int) -> None:
        visitor = Client(address, f"visitor-{number}")
        await visitor.send(CLUSTER)
        for visit in range(number % 4):
            await visitor.take()
            snapshots.update("shop", {CLUSTER: blobs("a", version=f"{visit} of visitor {number}")})
        await visitor.close()

    await client.send(CLUSTER)
    await client.take()
    await asyncio.gather(*(come_and_go(number) for number in range(40)))
    await eventually(lambda: [status.node.id for status in server.streams()] == ["pod-1"])
    assert len(observer.left) == len(observer.joined) - 1
    snapshots.update("shop", {CLUSTER: blobs("last")})
    while "last" not in await client.take():
        pass
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_dropped_group_makes_its_clients_reconnect(snapshots, client):
    await client.send(CLUSTER)
    await client.take()
    snapshots.drop("shop")
    assert await client.call.code() == grpc.StatusCode.ABORTED


async def test_a_delayed_route_is_sent_after_its_timeout_without_an_event(snapshots, client):
    await client.send(CLUSTER)
    await client.receive()  # without acknowledging it
    await client.send(LISTENER)
    assert await client.take() == ["l"]


async def test_streams_report_the_sync_state_of_each_client(snapshots, server, client):
    await client.send(CLUSTER)
    response = await client.receive()
    (status,) = server.streams()
    assert (status.node.id, status.group, status.dialect) == ("pod-1", "shop", Dialect.DELTA)
    assert status.types[CLUSTER].sync is Sync.STALE
    assert status.types[CLUSTER].sent == response.nonce
    await client.ack(response)
    assert await server.wait_synced("pod-1", 10, frozenset({CLUSTER}))
    assert server.streams()[0].types[CLUSTER].sync is Sync.SYNCED


async def test_waiting_for_sync_means_everything_up_to_now(snapshots, server, client):
    assert not await server.wait_synced("pod-1", 0.01)
    waiting = asyncio.create_task(server.wait_synced("pod-1", 10))
    await client.send(CLUSTER)
    await client.take()
    await client.send(LISTENER)
    response = await client.receive()
    assert not waiting.done()
    await client.ack(response)
    assert await waiting
    assert await server.wait_synced("pod-1", 0)
    snapshots.update("shop", {CLUSTER: blobs("a", version="2")})
    waiting = asyncio.create_task(server.wait_synced("pod-1", 10))
    response = await client.receive()
    assert not waiting.done()
    await client.ack(response)
    assert await waiting


async def test_waiting_for_sync_needs_only_what_this_client_can_see(snapshots, server, client):
    await client.send(CLUSTER)
    await client.take()
    await client.send(LISTENER)
    await client.take()
    snapshots.update("shop", {ENDPOINT: blobs("nobody asked for this")})
    assert await server.wait_synced("pod-1", 10)


@pytest.mark.parametrize(
    ("method", "kind"),
    [("StreamSecrets", discovery_pb2.DiscoveryResponse), ("DeltaSecrets", discovery_pb2.DeltaDiscoveryResponse)],
)
async def test_an_sds_server_serves_sds_and_no_other_service(tmp_path, observer, method, kind):
    snapshots = Snapshots()
    snapshots.replace("shop", {SECRET: blobs("default", "ROOTCA")})
    server = XdsServer(snapshots, observer, service=SECRET_SERVICE, shared_bytes=0)
    channel = grpc.aio.insecure_channel(await server.listen(f"unix:{tmp_path}/sds.sock"))
    request = discovery_pb2.DiscoveryRequest(type_url=SECRET, resource_names=["default"])
    if method == "DeltaSecrets":
        request = discovery_pb2.DeltaDiscoveryRequest(type_url=SECRET, resource_names_subscribe=["default"])
    request.node.id, request.node.cluster = "pod-1", "shop"
    call = channel.stream_stream(f"/{SECRET_SERVICE}/{method}")()
    await call.write(request.SerializeToString())
    async with asyncio.timeout(30):
        answer = kind.FromString(await call.read())
    assert (answer.type_url, len(answer.resources)) == (SECRET, 1)
    everything = channel.stream_stream(METHOD + "DeltaAggregatedResources")()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await everything.read()
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    call.cancel()
    await channel.close()
    await server.close()
    assert len(server._responses._kept) <= 1  # replaced responses are not kept


async def test_a_client_whose_group_is_not_known_yet_waits_for_it(tmp_path):
    known, waiting = asyncio.Event(), []

    async def found(stream_id):
        waiting.append(stream_id)
        try:
            await known.wait()
        finally:
            waiting.remove(stream_id)
        return "shop"

    class Waiting(Observer):
        def join(self, stream_id, node, peer):
            return found(stream_id)

    snapshots = small_shop()
    server = XdsServer(snapshots, Waiting())
    address = await server.listen(f"unix:{tmp_path}/waiting.sock")
    async with grpc.aio.insecure_channel(address) as channel:
        gone, stays = (channel.stream_stream(METHOD + "DeltaAggregatedResources")() for _ in range(2))
        request = discovery_pb2.DeltaDiscoveryRequest(type_url=CLUSTER)
        request.node.id = "pod-1"
        for call in (gone, stays):
            await call.write(request.SerializeToString())
            await call.initial_metadata()
        await eventually(lambda: len(waiting) == 2)
        gone.cancel()
        await eventually(lambda: len(waiting) == 1)
        assert server.streams() == []
        known.set()
        payload = await asyncio.wait_for(stays.read(), 30)
        assert discovery_pb2.DeltaDiscoveryResponse.FromString(payload).resources[0].name == "a"
        (status,) = server.streams()
        server.restart(status.stream_id, "moved")
        server.restart(4711, "nobody")
        assert await asyncio.wait_for(stays.code(), 30) is grpc.StatusCode.ABORTED
    await server.close()


async def test_the_observer_is_notified_of_held_names_and_of_what_a_client_had(observer, client):
    await client.send(CLUSTER, initial_resource_versions={"a": "1", "c": "1"})
    await client.take()
    await client.send(CLUSTER, resource_names_subscribe=["hold|15001|10.96.0.1", "other"])
    await eventually(lambda: len(observer.wants) >= 2)  # the first request may get two responses
    (first, second) = observer.wants
    assert (first[1], set(first[2])) == ((), {"a", "c"})
    assert second[1:] == (("hold|15001|10.96.0.1",), ())


class Asking(Observer):
    """An observer that makes clients wait until clusters that they have are prepared."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def wanted(self, stream_id, names, had):
        super().wanted(stream_id, names, had)
        return self.answer() if had else None


async def test_nothing_is_sent_to_a_client_while_the_observer_prepares_what_it_has(snapshots, tmp_path):
    known = asyncio.Event()
    server = XdsServer(snapshots, Asking(known.wait))
    address = await server.listen(f"unix:{tmp_path}/xds.sock")
    back, fresh = Client(address), Client(address, "pod-2")
    await back.send(CLUSTER, initial_resource_versions={"c": "1"})
    await back.send(LISTENER, initial_resource_versions={"m": "1"})
    await eventually(lambda: any(LISTENER in each.types for each in server.streams()))
    await fresh.send(CLUSTER)
    assert await fresh.take() == ["a", "b"]  # no client waits for another
    (waiting,) = (each for each in server.streams() if each.node.id == "pod-1")
    assert {each.sync for each in waiting.types.values()} == {Sync.NOT_SENT}
    snapshots.update("shop", {CLUSTER: blobs("c"), LISTENER: blobs("m")})
    known.set()
    removed = []
    for _ in range(2):
        response = await back.receive()
        await back.ack(response)
        removed += response.removed_resources
    assert removed == []
    for client in (back, fresh):
        await client.close()
    await server.close()


async def test_the_versions_that_a_client_has_are_read_once(snapshots, tmp_path):
    """Otherwise every request would wait for the observer again, without end if it does not respond."""
    asked = []

    async def forever():
        asked.append(True)
        await asyncio.Event().wait()

    server = XdsServer(snapshots, Asking(forever))
    client = Client(await server.listen(f"unix:{tmp_path}/xds.sock"))
    for number in range(20):
        await client.send(CLUSTER, initial_resource_versions={f"c{number}": "1"})
    await client.send(LISTENER)
    await eventually(lambda: any(LISTENER in each.types for each in server.streams()))
    assert asked == [True]
    await client.close()
    await server.close()


async def test_a_client_is_served_when_the_observer_fails(snapshots, tmp_path):
    async def failing():
        raise ValueError("nobody thought of this")

    server = XdsServer(snapshots, Asking(failing))
    client = Client(await server.listen(f"unix:{tmp_path}/xds.sock"))
    await client.send(CLUSTER, initial_resource_versions={"c": "1"})
    assert await client.take() == ["a", "b"]
    await client.close()
    await server.close()


async def test_a_client_can_be_rejected_or_disconnect_while_the_observer_decides(snapshots, tmp_path):
    waiting = []

    async def forever():
        waiting.append(True)
        try:
            await asyncio.Event().wait()
        finally:
            waiting.pop()

    server = XdsServer(snapshots, Asking(forever))
    address = await server.listen(f"unix:{tmp_path}/xds.sock")
    moved, gone = Client(address), Client(address, "pod-2")
    for each in (moved, gone):
        await each.send(CLUSTER, initial_resource_versions={"c": "1"})
    await eventually(lambda: len(waiting) == 2)
    (stream_id,) = (each.stream_id for each in server.streams() if each.node.id == "pod-1")
    server.restart(stream_id, "moved")
    assert await asyncio.wait_for(moved.call.code(), 30) is grpc.StatusCode.ABORTED
    await gone.close()
    await eventually(lambda: not waiting and not server.streams())
    await moved.close()
    await server.close()
