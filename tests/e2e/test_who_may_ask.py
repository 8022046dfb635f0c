"""On one machine only the owner can query the mesh: the access of a pod's program, its proxy or another user of the
machine to the mesh's sockets, the debug interface, and other pods' Envoys."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import grpc
import grpc.aio
import pytest
from tests.inspect.debug.test_stream import DUMP, SYNCZ, Istioctl

from e2e.objects import http_service, text, workload
from weft.local.run_directory import socket_of

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module")]

PROXY, NOBODY = 1337, 65534
CONNECT = """
import socket, sys
for path in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        print("open")
    except OSError as error:
        print(type(error).__name__)
"""


def files(control):
    return {
        "client.yaml": text(workload("client", control=control)),
        "app.yaml": text(workload("app", control=control, serve="http=8080"), http_service("app")),
    }


async def connected(pod, user, paths):
    """The result of connecting to these sockets as this user, in the pod's own network."""
    command = ["nsenter", "-t", str(pod.pid), "-n", "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    command += [sys.executable, "-I", "-c", CONNECT, *map(str, paths)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    return done.stdout.split()


async def test_only_the_owner_reaches_the_sockets_of_a_mesh(mesh):
    directory = socket_of(mesh.engine.name).parent
    paths = [directory / "api.sock", directory / "owner" / "xds.sock", directory / "xds.sock"]
    pod = mesh.pod("client")
    assert await connected(pod, 0, paths) == ["open"] * 3
    programs = Path(f"/proc/{pod.pid}").stat().st_uid
    assert programs not in (0, PROXY)
    for user in (programs, PROXY, NOBODY):
        assert await connected(pod, user, paths) == ["PermissionError"] * 3, user


async def test_debug_requests_on_the_socket_of_the_proxies_are_denied(mesh):
    """Each Envoy has this socket, so a compromised one could send these requests."""
    path = socket_of(mesh.engine.name).with_name("xds.sock")
    async with grpc.aio.insecure_channel(f"unix:{path}") as to:
        for question in (SYNCZ, DUMP, "istio.io/debug", "istio.io/debug/configz"):
            istioctl = Istioctl(to)
            await istioctl.ask(question, "app-0.shop")
            assert await istioctl.code() is grpc.StatusCode.PERMISSION_DENIED
    owner = path.with_name("owner") / "xds.sock"
    async with grpc.aio.insecure_channel(f"unix:{owner}") as to:
        istioctl = Istioctl(to)
        await istioctl.ask(SYNCZ)
        assert len((await istioctl.read()).resources) == 2


async def test_a_pod_reaches_its_own_envoys_admin_and_no_others(mesh):
    own = (await mesh.get("client", "http://127.0.0.1:15000/server_info"))["body"]["node"]["id"]
    assert "~client-0.shop~" in own
    for address in mesh.pod("app").addresses:
        host = f"[{address}]" if ":" in address else address
        for port in (15000, 15010, 15012, 15014, 15017):
            answer = await mesh.get("client", f"http://{host}:{port}/config_dump")
            assert answer["status"] in (0, 502, 503) and "configs" not in json.dumps(answer), (host, port, answer)
