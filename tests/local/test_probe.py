from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from datetime import timedelta

import pytest

from weft.local.probe import ProbeTarget, Thresholds, check, watch
from weft.model.workload import ExecProbe, HttpProbe, Probe, TcpProbe
from weft.netns import namespace
from weft.netns.links import IPRoute

pytestmark = pytest.mark.root


@pytest.fixture
def pod():
    made = namespace.make(f"wt-probe-{os.urandom(3).hex()}")

    def up():
        with IPRoute() as netlink:
            netlink.link("set", index=1, state="up")

    namespace.run_in(made, up)
    yield made
    namespace.delete(made)


async def run(command):
    process = await asyncio.create_subprocess_exec(*command)
    return await process.wait()


def target(pod) -> ProbeTarget:
    return ProbeTarget(pod, "127.0.0.1", (("http", 8080),), run)


async def serve(pod, answer: bytes):
    async def handle(reader, writer):
        handle.seen.append(await reader.readline() + await reader.read(4096))
        writer.write(answer)
        await writer.drain()
        writer.close()

    handle.seen = []
    listening = namespace.socket_in(pod)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", 8080))
    server = await asyncio.start_server(handle, sock=listening)
    return server, handle.seen


QUICK = {"timeout": timedelta(seconds=0.3), "period": timedelta(seconds=0.02)}


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", ""),
        (b"HTTP/1.1 302 Found\r\n\r\n", ""),
        (b"HTTP/1.1 503 Busy\r\n\r\n", "GET /ready on port 8080: answered 503"),
        (b"220 smtp hello\r\n", "GET /ready on port 8080: the response is not HTTP"),
        (b"\xff\xfe\n", "GET /ready on port 8080: the response is not HTTP"),
        (b"x" * 200_000, "GET /ready on port 8080: the response is not HTTP"),
    ],
)
async def test_the_http_status_decides_a_probe(pod, answer, failure):
    server, seen = await serve(pod, answer)
    probe = Probe(HttpProbe("http", "/ready", headers=(("X-Kind", "probe"),)), **QUICK)
    assert await check(probe, target(pod)) == failure
    assert b"GET /ready HTTP/1.1\r\n" in seen[0] and b"x-kind: probe\r\n" in seen[0]
    server.close()


async def test_silence_and_a_closed_port_are_failures(pod):
    assert await check(Probe(TcpProbe(8080), **QUICK), target(pod)) == "port 8080: connection refused"
    asked = Probe(HttpProbe(8080, "/ready"), **QUICK)
    assert await check(asked, target(pod)) == "GET /ready on port 8080: connection refused"
    silent = namespace.socket_in(pod)
    silent.bind(("127.0.0.1", 8080))
    silent.listen()
    assert await check(Probe(TcpProbe("http"), **QUICK), target(pod)) == ""
    assert await check(Probe(HttpProbe(8080), **QUICK), target(pod)) == "GET / on port 8080: no answer within 0.3 s"
    silent.close()


async def test_an_unknown_port_name_is_reported(pod):
    assert (
        await check(Probe(TcpProbe("grpc"), **QUICK), target(pod)) == "port grpc: the workload has no port named `grpc`"
    )


async def test_a_command_decides_by_its_status(pod):
    assert await check(Probe(ExecProbe(("true",)), **QUICK), target(pod)) == ""
    assert await check(Probe(ExecProbe(("false",)), **QUICK), target(pod)) == "false: exit status 1"


ANSWERS = """
import socket
listening = socket.create_server(("127.0.0.1", 8080))
print(flush=True)
while True:
    caller, _ = listening.accept()
    caller.recv(4096)
    caller.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
    caller.close()
"""


async def test_an_answer_counts_although_the_engine_is_too_busy_to_read_it_in_time(pod):
    command = ("nsenter", f"--net={pod.path}", sys.executable, "-c", ANSWERS)
    app = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        await app.stdout.readline()
        asked = asyncio.create_task(check(Probe(HttpProbe(8080), timeout=timedelta(seconds=2)), target(pod)))
        await asyncio.sleep(0)
        time.sleep(2.5)
        assert await asked == ""
    finally:
        app.kill()
        await app.wait()


def test_readiness_changes_after_as_many_results_in_a_row_as_the_thresholds():
    thresholds = Thresholds(Probe(TcpProbe(1), success_threshold=2, failure_threshold=3))
    answers = [True, False, True, True, False, False, True, False, False, False]
    ready = []
    for passed in answers:
        thresholds.count(passed=passed)
        ready.append(thresholds.ready)
    assert ready == [False, False, False, True, True, True, True, True, True, False]


async def test_reports_the_reason_then_ready_then_unready_then_ready_again(pod):
    told: asyncio.Queue[tuple[bool, str]] = asyncio.Queue()
    probe = Probe(TcpProbe(8080), failure_threshold=2, **QUICK)
    task = asyncio.create_task(watch(probe, target(pod), lambda ready, why: told.put_nowait((ready, why))))
    try:
        async with asyncio.timeout(30):
            assert (await told.get())[0] is False
            for _ in range(2):
                server, _ = await serve(pod, b"")
                assert await told.get() == (True, "")
                server.close()
                ready, why = await told.get()
                assert not ready and "refused" in why.lower()
    finally:
        task.cancel()
