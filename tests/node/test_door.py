"""Which processes may connect, and that their data is proxied; the modes are tested with real Envoys in test_sds.py."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from weft.node.door import LONGEST_PATH, DoorError, Doorway, WorkloadSocket


@pytest.fixture
async def echo(tmp_path):
    """The server behind the socket."""

    async def serve(reader, writer):
        while some := await reader.read(100):
            writer.write(some.upper())
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "inner")
    yield str(tmp_path / "inner")
    server.close()


def doorway(path, **fields) -> Doorway:
    return Doorway(**{"path": path, "uid": os.getuid(), "gid": os.getgid(), **fields})


async def say(path, words: bytes) -> bytes:
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            writer.write(words)
            await writer.drain()
            return await reader.read(100)
        except ConnectionError:
            return b""
        finally:
            writer.close()


async def test_an_accepted_connection_is_proxied(tmp_path, echo):
    path = tmp_path / "pod" / "sds.sock"
    door = WorkloadSocket(doorway(path), echo)
    await door.open()
    assert await say(path, b"hello") == b"HELLO"
    await door.close()


async def test_the_directory_is_kept_until_its_workload_ends(tmp_path, echo):
    path = tmp_path / "pod" / "sds.sock"
    door = WorkloadSocket(doorway(path), echo)
    await door.open()
    shown = path.parent.stat()
    await door.close()
    assert not path.exists()
    successor = WorkloadSocket(doorway(path), echo)
    await successor.open()
    assert os.path.samestat(path.parent.stat(), shown)
    await successor.close(gone=True)
    assert not path.parent.exists()


@pytest.mark.parametrize("fields", [{"uid": 65_000}, {"network": "/proc/1/no/such"}])
async def test_a_rejected_caller_gets_no_data_and_is_logged(tmp_path, echo, fields, caplog):
    from pathlib import Path

    path = tmp_path / "pod" / "sds.sock"
    door = WorkloadSocket(
        doorway(path, **({"network": Path(fields["network"])} if "network" in fields else fields)), echo
    )
    await door.open()
    assert await say(path, b"hello") == b""
    assert f"rejected process {os.getpid()} of user {os.getuid()}" in caplog.text
    await door.close()


async def test_the_same_network_is_the_same_whatever_file_names_it(tmp_path, echo):
    from pathlib import Path

    path = tmp_path / "pod" / "sds.sock"
    door = WorkloadSocket(doorway(path, network=Path("/proc/self/ns/net")), echo)
    await door.open()
    assert await say(path, b"hello") == b"HELLO"
    await door.close()


async def test_closing_ends_what_is_open(tmp_path, echo):
    path = tmp_path / "pod" / "sds.sock"
    door = WorkloadSocket(doorway(path), echo)
    await door.open()
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"hello")
    assert await reader.read(100) == b"HELLO"
    await door.close()
    async with asyncio.timeout(30):
        assert await reader.read(100) == b""
    writer.close()


async def test_a_left_over_socket_is_replaced_and_a_successors_socket_is_not_removed(tmp_path, echo):
    path = tmp_path / "pod" / "sds.sock"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    first = WorkloadSocket(doorway(path), echo)
    await first.open()
    assert await say(path, b"one") == b"ONE"
    second = WorkloadSocket(doorway(path), echo)
    await second.open()
    await first.close()
    assert await say(path, b"two") == b"TWO"
    await second.close()


async def test_a_greedy_client_gets_no_more_than_a_few_connections(tmp_path, echo, caplog):
    path = tmp_path / "pod" / "sds.sock"
    door = WorkloadSocket(doorway(path), echo)
    await door.open()
    writers = []
    for _ in range(16):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"x")
        assert await reader.read(1) == b"X"
        writers.append(writer)
    assert await say(path, b"hello") == b""
    assert "16 connections are open already" in caplog.text
    for writer in writers:
        writer.close()
    await door.close()


async def test_the_connection_is_closed_if_the_server_behind_the_socket_is_gone(tmp_path, caplog):
    path = tmp_path / "pod" / "sds.sock"
    door = WorkloadSocket(doorway(path), str(tmp_path / "nobody"))
    await door.open()
    assert await say(path, b"hello") == b""
    assert "cannot connect to the server behind this socket" in caplog.text
    await door.close()


@pytest.mark.parametrize("name", ["x" * LONGEST_PATH, "no/such/parent/sds.sock"])
async def test_an_impossible_path_is_reported(tmp_path, name):
    with pytest.raises(DoorError, match="socket"):
        await WorkloadSocket(doorway(tmp_path / name), "/inner").open()


async def test_a_directory_with_other_things_in_it_is_refused_and_stays_as_it_is(tmp_path):
    (tmp_path / "run").mkdir(mode=0o755)
    (tmp_path / "run" / "other.pid").touch()
    with pytest.raises(DoorError, match=r"must contain only the workload's sockets, but it contains other\.pid"):
        await WorkloadSocket(doorway(tmp_path / "run" / "sds.sock"), "/inner").open()
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o755


@pytest.mark.root
async def test_a_directory_of_another_user_is_rejected(tmp_path):
    (tmp_path / "pod").mkdir()
    os.chown(tmp_path / "pod", 65_000, 65_000)
    with pytest.raises(DoorError, match="belongs to another user"):
        await WorkloadSocket(doorway(tmp_path / "pod" / "sds.sock"), "/inner").open()
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(DoorError, match="belongs to another user"):
        await WorkloadSocket(doorway(tmp_path / "link" / "sds.sock"), "/inner").open()


VOLUME = "pods/0f6c6d6e-5f0c-4c6b-8c88-4f1d7a3f7f0e/volumes/kubernetes.io~csi/workload-socket/mount"


async def test_a_long_path_that_its_proxy_sees_as_a_short_one_beside_its_siblings(tmp_path, echo):
    from pathlib import Path

    volume = tmp_path / VOLUME
    volume.parent.mkdir(parents=True)
    ways = [
        doorway(volume / name, beside=frozenset({"socket", "xds"} - {name}), seen=Path("/var/run/secrets", name))
        for name in ("socket", "xds")
    ]
    assert len(os.fsencode(ways[0].path)) > LONGEST_PATH
    (volume.parent / "mount").mkdir()
    with socket.socket(socket.AF_UNIX) as left:  # left by an agent that was killed while it created a socket
        opened = os.open(volume, os.O_PATH)
        left.bind(f"/proc/self/fd/{opened}/.new-xds")
    doors = [WorkloadSocket(way, echo) for way in ways]
    for door in doors:
        await door.open()
    assert {each.name for each in volume.iterdir()} == {"socket", "xds"}
    for name in ("socket", "xds"):
        assert await say(f"/proc/self/fd/{opened}/{name}", b"hello") == b"HELLO"
    os.close(opened)
    await doors[0].close(gone=True)
    assert [each.name for each in volume.iterdir()] == ["xds"]  # the directory is removed with its last socket
    await doors[1].close(gone=True)
    assert not volume.exists()


async def test_what_its_proxy_sees_must_not_be_too_long_either(tmp_path):
    from pathlib import Path

    with pytest.raises(DoorError, match="is too long"):
        await WorkloadSocket(doorway(tmp_path / "pod" / "s", seen=Path("/", "x" * LONGEST_PATH)), "/inner").open()


async def test_a_stranger_in_a_shared_directory_is_refused(tmp_path):
    (tmp_path / "pod").mkdir()
    (tmp_path / "pod" / "stranger").touch()
    with pytest.raises(DoorError, match="it contains stranger"):
        await WorkloadSocket(doorway(tmp_path / "pod" / "socket", beside=frozenset({"xds"})), "/inner").open()
