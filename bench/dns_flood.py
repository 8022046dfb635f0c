"""Measures how long name lookups of one pod take while another pod sends ten thousand queries per second, and without
that flood. Both clients are processes of their own in the network namespaces of their pods."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import dns.message

from bench import mesh
from bench.figure import Effort, Figure, Say, quantile
from bench.process import Failed
from weft.local.pod import LocalPod

_RATE = 10_000
_GOAL_MS = 50.0
# One query after the other, with a pause of 5 ms; prints the duration of each in seconds. A lost query counts as 5 s.
_ASK = """
import json, socket, sys, time
server, wire, count = sys.argv[1], bytes.fromhex(sys.argv[2]), int(sys.argv[3])
took = []
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
    client.settimeout(5.0)
    client.connect((server, 53))
    for _ in range(count):
        begun = time.monotonic()
        client.send(wire)
        try:
            client.recv(512)
        except TimeoutError:
            pass
        took.append(time.monotonic() - begun)
        time.sleep(0.005)
print(json.dumps(took))
"""
_FLOOD = """
import socket, sys, time
server, wire, rate = sys.argv[1], bytes.fromhex(sys.argv[2]), int(sys.argv[3])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
    client.connect((server, 53))
    begun, sent = time.monotonic(), 0
    while True:
        while sent < (time.monotonic() - begun) * rate:
            try:
                client.send(wire)
            except OSError:
                pass
            sent += 1
        time.sleep(0.001)
"""


def run(effort: Effort, say: Say) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        alone, beside = asyncio.run(_measure(Path(directory), effort.of(2_000, 100), say))
    name = f"a pod's DNS lookup beside a pod that sends {_RATE:,} queries per second"
    return [
        Figure(f"{name}: p50", quantile(beside, 0.5) * 1000, "ms", _GOAL_MS, quantile(alone, 0.5) * 1000),
        Figure(f"{name}: p99", quantile(beside, 0.99) * 1000, "ms", _GOAL_MS, quantile(alone, 0.99) * 1000),
        Figure(f"{name}: the slowest", max(beside) * 1000, "ms", _GOAL_MS, max(alone) * 1000),
    ]


async def _measure(directory: Path, queries: int, say: Say) -> tuple[list[float], list[float]]:
    """Return the durations of lookups in seconds, without the flood and beside it."""
    for name in ("quiet", "loud"):
        mesh.save(directory / f"{name}.yaml", mesh.workload(name), mesh.service(name, 80, 8080))
    async with mesh.running(directory) as engine:
        await mesh.until_ready(engine, 2)
        pods = {pod.plan.workload.name: pod for pod in engine.pods()}
        server = str(engine.addresses.bridge[0].ip)
        alone = await _ask(pods["quiet"], server, queries)
        async with _flooding(pods["loud"], server):
            beside = await _ask(pods["quiet"], server, queries)
        say(f"{queries} lookups alone, {queries} beside the flood")
    return alone, beside


async def _ask(pod: LocalPod, server: str, queries: int) -> list[float]:
    process = await _started(pod, _ASK, server, str(queries))
    said, _ = await process.communicate()
    if process.returncode:
        raise Failed(f"the client that looks up names ended with status {process.returncode}")
    took: list[float] = json.loads(said)
    return took


@contextlib.asynccontextmanager
async def _flooding(pod: LocalPod, server: str) -> AsyncIterator[None]:
    process = await _started(pod, _FLOOD, server, str(_RATE))
    try:
        await asyncio.sleep(1.0)  # until the flood is at its rate, and its allowance is spent
        yield
        if process.returncode is not None:
            raise Failed("the flood ended early")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _started(pod: LocalPod, program: str, server: str, number: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *("ip", "netns", "exec", pod.namespace.name, sys.executable, "-c", program, server, _query().hex(), number),
        stdout=asyncio.subprocess.PIPE,
    )


def _query() -> bytes:
    return dns.message.make_query("quiet.bench.svc.cluster.local", "A").to_wire()
