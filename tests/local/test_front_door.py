"""The front door, with a real Envoy in the network of the machine that the tests run on; on loopback only."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from pathlib import Path

import pytest
from tools.ports import free_port

from eventually import eventually
from weft.base.problem import Where
from weft.envoy import binary
from weft.local import front_door as module
from weft.local.front_door import FrontDoor, Publication
from weft.model.proxy import PROXY_GID, PROXY_UID
from weft.netns import namespace

pytestmark = pytest.mark.root


class Gateway:
    """Accepts connections on a Unix socket, and answers each with the addresses in its PROXY header."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def __aenter__(self) -> Gateway:
        self.path.parent.mkdir(exist_ok=True)
        self._server = await asyncio.start_unix_server(self._answer, self.path)
        for each in (self.path.parent, self.path):
            os.chown(each, PROXY_UID, PROXY_GID)
        return self

    async def __aexit__(self, *_) -> None:
        self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readexactly(16)
        assert head[:12] == b"\r\n\r\n\x00\r\nQUIT\n"
        rest = await reader.readexactly(struct.unpack("!H", head[14:16])[0])
        addresses = [socket.inet_ntoa(rest[:4]), socket.inet_ntoa(rest[4:8]), *struct.unpack("!HH", rest[8:12])]
        said = await reader.readline()
        writer.write(f"{self.path.parent.name} {addresses} {said.decode()}".encode())
        writer.close()


@pytest.fixture
async def door(tmp_path):
    tmp_path.chmod(0o755)
    doors = tmp_path / "doors"
    doors.mkdir(mode=0o755)
    # As in a mesh, which uses its bridge's namespace: the file view of a process is set up in a named namespace.
    bridge = namespace.make(f"weft-door-{os.getpid()}")
    made = FrontDoor(binary.find(), tmp_path, doors)
    yield made
    await made.close()
    namespace.delete(bridge)


def published(port: int, *sockets: str, owner: str = "Workload shop/edge", address: str = "127.0.0.1") -> Publication:
    return Publication(owner, Where("edge.yaml", 7, owner), address, port, sockets)


async def call(port: int) -> tuple[str, int]:
    """Return the gateway's answer, and the caller's own port."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    own = writer.get_extra_info("sockname")[1]
    writer.write(b"hello\n")
    answer = (await reader.read()).decode()
    writer.close()
    return answer, own


async def until_answered(port: int) -> tuple[str, int]:
    return await eventually(lambda: call(port), lambda answer: answer[0], retry=OSError)


async def test_a_caller_of_the_machine_comes_to_the_gateway_with_its_own_address(door, tmp_path):
    port = free_port()
    async with Gateway(tmp_path / "doors/10001/published-80.sock"):
        door.want([published(port, "10001/published-80.sock")])
        await until_answered(port)
        answer, own = await call(port)
    assert answer == f"10001 ['127.0.0.1', '127.0.0.1', {own}, {port}] hello\n"
    assert door.problems() == ()


async def test_pods_are_added_and_removed_behind_an_open_port(door, tmp_path):
    port = free_port()
    async with Gateway(tmp_path / "doors/1/s"), Gateway(tmp_path / "doors/2/s"):
        door.want([published(port, "1/s")])
        await until_answered(port)
        pid = door.pid
        door.want([published(port, "2/s")])
        await eventually(lambda: call(port), lambda value: value[0].startswith("2 "))
        assert door.pid == pid
        door.want([published(port)])  # no pod is ready: connections are closed
        await eventually(lambda: call_or_nothing(port), lambda value: value == "")


async def call_or_nothing(port: int) -> str:
    try:
        return (await call(port))[0]
    except ConnectionError:
        return ""


async def test_a_taken_port_is_a_problem_at_its_line_and_is_published_once_it_is_free(door, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RETRY", 0.05)
    taken, port = socket.create_server(("127.0.0.1", 0)), free_port()
    number = taken.getsockname()[1]
    async with Gateway(tmp_path / "doors/1/s"):
        door.want([published(number, "1/s"), published(port, "1/s")])
        await door.settled()
        (problem,) = door.problems()
        assert str(problem.where).startswith("edge.yaml:7")
        assert f"port {number} of 127.0.0.1 is not published: another program on this machine uses it" in str(problem)
        assert "another hostPort" in problem.hint
        await until_answered(port)  # the other port is served
        taken.close()
        await until_answered(number)
        assert door.problems() == ()


async def test_the_first_of_two_publications_of_one_port_wins(door):
    port = free_port()
    door.want([published(port, owner="Workload shop/b", address="0.0.0.0"), published(port, owner="Workload shop/a")])
    await door.settled()
    (problem,) = door.problems()
    assert f"port {port} of 0.0.0.0 is already published by Workload shop/a" in str(problem)


async def test_an_address_that_the_machine_does_not_have_is_a_problem(door):
    door.want([published(free_port(), address="192.0.2.7")])
    await door.settled()
    (problem,) = door.problems()
    assert "this machine has no address 192.0.2.7" in str(problem)
    assert door.pid == 0  # no port can be published


async def test_its_envoy_is_restarted_and_ends_with_the_last_publication(door, tmp_path):
    port = free_port()
    async with Gateway(tmp_path / "doors/1/s"):
        door.want([published(port, "1/s")])
        await until_answered(port)
        first = door.pid
        os.kill(first, 9)
        await eventually(lambda: door.pid not in (0, first))
        await until_answered(port)
        second = door.pid
        door.want([])
        await eventually(lambda: not Path(f"/proc/{second}").exists())
        assert door.problems() == ()


async def test_it_runs_as_the_proxys_user_with_one_capability(door, tmp_path):
    port = free_port()
    async with Gateway(tmp_path / "doors/1/s"):
        door.want([published(port, "1/s")])
        await until_answered(port)
        status = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{door.pid}/status").read_text().splitlines() if ":\t" in line
        )
    assert status["Uid"].split()[0] == str(PROXY_UID)
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 1 << 10  # CAP_NET_BIND_SERVICE
    assert status["NoNewPrivs"] == "1"
