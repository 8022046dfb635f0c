"""Only the owner of a control plane can use its Unix socket."""

import json
import os
import socket
import stat

import aiohttp
import pytest

from weft.base.private_directory import make_private
from weft.control.plane import ControlPlane
from weft.inspect.attach import attach_debug
from weft.inspect.debug.socket import DebugSocket, Serving


@pytest.fixture
async def path(tmp_path):
    plane = ControlPlane()
    plane.apply([])
    make_private(tmp_path / "own")
    found = tmp_path / "own" / "debug.sock"
    found.touch()  # a stale socket of a control plane that was killed
    made = DebugSocket(attach_debug(plane), Serving("/mesh", 7))
    await made.listen(found)
    yield found
    await made.close()
    assert not found.exists()
    await plane.close()


async def ask(path, url, question=None):
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session:
        method = "GET" if question is None else "POST"
        async with session.request(method, f"http://weft{url}", data=question) as answer:
            return answer.status, await answer.json(content_type=None)


async def test_the_owner_can_read_debug_pages_and_the_served_directory(path):
    assert await ask(path, "/serving") == (200, {"directory": "/mesh", "pid": 7})
    assert await ask(path, "/debug/syncz") == (200, [])
    assert "history" in (await ask(path, "/debug/list"))[1]


async def test_a_long_question_is_posted(path):
    question = json.dumps({"before": "@0", "cases": [{"where": {}, "caller": "a" * 200, "to": "http://b/"}] * 50})
    status, said = await ask(path, "/debug/diff", question)
    assert (status, said["difference"]["tried"]) == (200, 50)


@pytest.mark.root
async def test_other_users_cannot_enter_the_sockets_directory(path):
    path.parent.parent.chmod(0o755)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert connected(path, 0) == "connected"
    assert connected(path, 65534) == "PermissionError"


def connected(path, user):
    """The result of a connection by a process of that user."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            socket.socket(socket.AF_UNIX).connect(str(path))
            os.write(writer, b"connected")
        except OSError as error:
            os.write(writer, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as said:
        return said.read()
