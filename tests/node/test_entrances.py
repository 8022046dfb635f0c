"""The socket identifies the client; a socket that was closed or could not be opened leaves nothing behind."""

from __future__ import annotations

import grpc.aio
import pytest

from control.proxy import Client
from node.test_door import doorway
from weft.node.door import LONGEST_PATH, DoorError
from weft.node.entrances import Entrances
from weft.xds.request import StreamRefused
from weft.xds.server import XdsServer
from weft.xds.snapshot import Snapshots


class Called:
    """Records the addresses at which clients connected to the server."""

    def __init__(self):
        self.addresses = []

    def join(self, stream_id, node, peer):
        self.addresses.append(peer.listener)
        raise StreamRefused("this was all")

    def leave(self, stream_id):
        pass


@pytest.fixture
async def called():
    return Called()


@pytest.fixture
async def entrances(tmp_path, called):
    server = XdsServer(Snapshots(), called)
    yield Entrances(tmp_path / "private", server)
    await server.close()


async def call(path):
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        client = Client(channel)
        await client.subscribe("type.googleapis.com/envoy.config.cluster.v3.Cluster")
        await client.code()


async def test_the_socket_identifies_the_client(tmp_path, entrances, called):
    paths = {name: tmp_path / name / "xds.sock" for name in ("one", "two")}
    for name, path in paths.items():
        await entrances.open(name, f"owner {name}", doorway(path))
    for name in ("two", "one"):
        await call(paths[name])
    assert [entrances.owner(address) for address in called.addresses] == ["owner two", "owner one"]
    assert entrances.names() == ("one", "two") and entrances.owners() == ["owner one", "owner two"]
    assert entrances.doorway("one") == doorway(paths["one"]) and entrances.doorway("three") is None
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o700


async def test_a_closed_socket_is_removed_and_has_no_owner(tmp_path, entrances, called):
    path = tmp_path / "one" / "xds.sock"
    await entrances.open("one", "owner", doorway(path))
    await call(path)
    assert await entrances.close("one", gone=True)
    assert not await entrances.close("one", gone=True)
    assert not path.exists() and not list((tmp_path / "private").iterdir())
    assert entrances.owner(called.addresses[0]) is None and entrances.names() == ()


async def test_one_that_cannot_be_opened_leaves_nothing(tmp_path, entrances):
    with pytest.raises(DoorError):
        await entrances.open("one", "owner", doorway(tmp_path / ("x" * LONGEST_PATH) / "xds.sock"))
    assert entrances.names() == () and entrances.owners() == []
    assert not list((tmp_path / "private").iterdir())


async def test_what_an_agent_before_left_there_is_replaced(tmp_path, entrances):
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "0").touch()
    path = tmp_path / "one" / "xds.sock"
    await entrances.open("one", "owner", doorway(path))
    await call(path)
