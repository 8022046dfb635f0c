from __future__ import annotations

import asyncio
import socket
import subprocess

import pytest

from eventually import eventually
from local.rig import CALLER, SERVICE, mesh, web
from weft.local import client
from weft.local.error import LocalError, NoSuchMesh

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("run_base")]


def test_a_mesh_that_does_not_run_is_an_error_with_a_hint():
    for ask in (client.fetch_status, client.fetch_problems):
        with pytest.raises(NoSuchMesh, match="weft up DIR"):
            ask("nobody")


def test_a_slow_mesh_is_an_error_with_a_hint_to_try_again(tmp_path, monkeypatch):
    path = tmp_path / "api.sock"
    monkeypatch.setattr(client, "socket_of", lambda name: path)
    monkeypatch.setattr(client, "_TIMEOUT", 0.01)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        with pytest.raises(LocalError, match="mesh `slow` does not answer: timed out") as raised:
            client.fetch_status("slow")
    assert raised.value.problem.hint == "the mesh may be busy: try again, or stop it and all its pods: weft down slow"


async def test_status_admin_and_logs_of_a_running_mesh():
    async with mesh(SERVICE, web(), CALLER) as rig:
        await rig.until_ready("caller-0", "web-0")
        name = rig.engine.name
        assert (await asyncio.to_thread(client.fetch_status, name)).name == name
        assert await asyncio.to_thread(client.fetch_problems, name) == ()
        assert await asyncio.to_thread(client.fetch_admin, name, "web", "/ready") == b"LIVE\n"
        assert await asyncio.to_thread(lambda: list(client.read_logs(name, "shop/web-0"))) == ["listening"]
        with pytest.raises(LocalError, match="no pod or workload `nobody`"):
            await asyncio.to_thread(lambda: list(client.read_logs(name, "nobody")))


async def test_a_command_enters_the_pod_as_its_app():
    async with mesh(CALLER) as rig:
        await rig.until_ready("caller-0")
        entrance = await asyncio.to_thread(
            client.fetch_entrance, rig.engine.name, "caller", ["sh", "-c", "echo $POD_IP"]
        )
        done = await asyncio.to_thread(
            subprocess.run, entrance.argv, env=entrance.environment, capture_output=True, text=True
        )
        assert done.stdout.strip() == rig.pod("caller").plan.addresses.texts[0]
        with pytest.raises(LocalError, match="no-such-program"):
            await asyncio.to_thread(client.fetch_entrance, rig.engine.name, "caller", ["no-such-program"])


async def test_following_ends_with_the_pod():
    async with mesh(CALLER) as rig:
        await rig.until_ready("caller-0")
        reading = asyncio.ensure_future(
            asyncio.to_thread(lambda: list(client.read_logs(rig.engine.name, "caller", follow=True)))
        )
        log = rig.pod("caller").log.app
        await eventually(lambda: log._followers)
        log.write("one")
        (rig.directory / "0.yaml").unlink()
        async with asyncio.timeout(20):
            assert await reading == ["one"]
