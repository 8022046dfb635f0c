"""A peer that vanished without closing its connections: packets to its pod are dropped, in its own namespace."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from e2e.objects import http_service, text, to, virtual_service, workload
from eventually import eventually
from weft.translate import resilience

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module", autouse=True)
def soon():
    """Shortens the keepalive pings, which take a minute by default to detect a dead peer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resilience, "_ASK_EVERY", timedelta(seconds=1))
        patch.setattr(resilience, "_ANSWER_WITHIN", timedelta(seconds=1))
        yield


def files(control):
    return {
        "client.yaml": text(workload("client", control=control)),
        "server.yaml": text(workload("server", control=control, serve="http=8080"), http_service("server")),
        "other.yaml": text(workload("other", control=control, serve="http=8080"), http_service("other")),
    }


@asynccontextmanager
async def vanished(mesh):
    pod = next(each for each in mesh.engine.pods() if each.plan.workload.name == "server")
    await dropping(pod, "-I")
    try:
        yield
    finally:
        await dropping(pod, "-D")


async def dropping(pod, how):
    rule = ("INPUT", "-p", "tcp", "--dport", "15006", "-j", "DROP")
    process = await asyncio.create_subprocess_exec(
        "nsenter", f"--net={pod.namespace.path}", "iptables", how, *rule
    )  # fmt: skip
    assert await process.wait() == 0


async def back(mesh):
    return (await mesh.get("client", "http://server/back"))["status"] == 200


async def test_a_request_to_a_vanished_peer_times_out_and_the_peer_is_called_again_when_it_is_back(mesh):
    await mesh.try_out(
        virtual_service("server", {"timeout": "1s", "retries": {"attempts": 0}, "route": [to("server")]}),
    )
    assert (await mesh.get("client", "http://server/before"))["status"] == 200
    async with vanished(mesh):
        assert (await mesh.get("client", "http://server/lost"))["status"] == 504
        assert (await mesh.get("client", "http://other/"))["status"] == 200
    await eventually(lambda: back(mesh))


async def test_without_a_timeout_a_vanished_peer_is_detected_and_the_dead_connection_is_not_reused(mesh):
    """A new connection attempt times out after ten seconds; the old connection would take a quarter of an hour."""
    assert (await mesh.get("client", "http://server/before"))["status"] == 200
    async with vanished(mesh):
        answer = await mesh.get("client", "http://server/lost", timeout=60)
        assert answer["status"] == 503, answer
    assert await back(mesh)
