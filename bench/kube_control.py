"""Measures the control plane of a large cluster: the CPU cost of its start, of the first sync of a hundred nodes, of
one endpoint and of one VirtualService, and its memory.

The rig runs `weft control --kubernetes` against a real API server with real objects. The streams use mTLS, with
certificates that the control plane issued for real tokens. Everything runs in a separate network namespace, because
the ports of the control plane are fixed. The process in that namespace is `python -m bench.kube_control`; it reports
progress and figures as JSON lines.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import msgspec
from tools.kube.api_server import ApiServer, started

from bench import kube_objects
from bench.figure import Effort, Figure, Say
from bench.kube_objects import ROOT, Agent, Shape
from bench.process import Failed, Running, cpu_seconds, resident
from weft.kube.client import Client
from weft.kube.config import load
from weft.kube.error import ApiError
from weft.kube.resource import CONFIG_MAPS
from weft.netns import namespace as network
from weft.netns.namespace import NetworkNamespace

_MEGABYTE = 1_000_000
_GOAL_MEGABYTES = 300
_PATIENCE = 240.0
_LOOK_SECONDS = 0.25
_RESTING = 0.1  # cores; with less CPU use than this, a process has finished its work and only does its periodic checks
_QUIET_SECONDS = 0.5
_IDLE_SECONDS = 5.0
_HOST = "istiod.istio-system.svc"
_MONITORING = "http://127.0.0.1:15014"


def run(effort: Effort, say: Say) -> list[Figure]:
    with _network() as inside:
        words = ["--quick"] if effort.quick else []
        with Running([sys.executable, "-m", "bench.kube_control", *words], namespace=inside) as process:
            while True:
                message = json.loads(process.line())
                if "failed" in message:
                    raise Failed(message["failed"])
                if "figures" in message:
                    return msgspec.convert(message["figures"], list[Figure])
                say(message["say"])


@contextlib.contextmanager
def _network() -> Iterator[NetworkNamespace]:
    created = network.make(f"weft-bench-{os.getpid()}")
    try:
        subprocess.run(["nsenter", f"--net={created.path}", "ip", "link", "set", "lo", "up"], check=True)
        yield created
    finally:
        network.delete(created)


class Cost:
    """The cost of one change: CPU seconds, seconds of translation, bytes on the streams, and seconds until the last
    stream received it."""

    def __init__(self, cpu: float, translation: float, got: dict[str, Any], began: float) -> None:
        self.cpu = cpu
        self.translation = translation
        self.bytes: int = got["bytes"]
        self.streams: int = got["streams"]
        self.took: float = got["last"] - began
        self.calls: int = got["calls"]


class Rig:
    """One measurement of the control plane with a cluster of `shape`. Progress messages go to `say`."""

    def __init__(self, shape: Shape, repeats: int, directory: Path, say: Say) -> None:
        self._shape, self._repeats, self._directory, self._say = shape, repeats, directory, say

    async def run(self, server: ApiServer) -> list[Figure]:
        shape = self._shape
        async with Client(load(server.kubeconfig), timeout=_PATIENCE) as client:
            began = time.monotonic()
            await kube_objects.install(client)
            agents = await kube_objects.load(client, shape)
            self._say(f"{shape.services} services, {shape.pods} pods and {shape.nodes} nodes are created, "
                      f"in {time.monotonic() - began:.0f} s")  # fmt: skip
            command = [sys.executable, "-m", "weft.cli", "control", "--kubernetes", f"--kubeconfig={server.kubeconfig}"]
            with (
                Running(command, log=self._directory / "control.log") as control,
                Running([sys.executable, "-m", "bench.node_streams"], log=self._directory / "streams.log") as streams,
            ):
                try:
                    return await self._measure(client, control, streams, agents)
                except Failed as failed:
                    tail = (self._directory / "control.log").read_text(errors="replace").splitlines()[-5:]
                    raise Failed("\n".join((str(failed), *tail))) from failed

    async def _measure(self, client: Client, control: Running, streams: Running, agents: list[Agent]) -> list[Figure]:
        shape, say = self._shape, self._say
        await self._ready(control)
        await _rest(control.pid)
        start, started_size = cpu_seconds(control.pid), resident(control.pid)
        say(f"started: {start:.1f} s of CPU, {started_size / _MEGABYTE:.0f} MB")
        line = {"target": "127.0.0.1:15012", "roots": await _roots(client), "server_name": _HOST}
        before = cpu_seconds(control.pid)
        await _ask(streams, {"do": "certify", "line": line, "agents": msgspec.to_builtins(agents)})
        await _rest(control.pid)
        certificates = cpu_seconds(control.pid) - before
        say(f"{shape.nodes} certificates by token: {certificates * 1000:.0f} ms of CPU")

        async def connect() -> None:
            await _ask(streams, {"do": "connect", "line": line})

        first = await self._cost(control, streams, connect())
        synced_size = resident(control.pid)
        say(f"first sync in {first.took:.1f} s: {first.cpu:.1f} s of CPU, {first.bytes / _MEGABYTE:.0f} MB sent, "
            f"RSS {synced_size / _MEGABYTE:.0f} MB")  # fmt: skip
        number = shape.services // 2
        number -= number % 10
        endpoints, routes = [], []
        for repeat in range(self._repeats):
            ready = repeat % 2 == 1
            endpoints.append(
                await self._cost(control, streams, kube_objects.set_ready(client, shape, number, ready=ready))
            )
            routes.append(
                await self._cost(control, streams, kube_objects.set_weight(client, shape, number, 80 - repeat))
            )
        say(f"one endpoint: {_mid(endpoints, 'cpu') * 1000:.0f} ms of CPU; "
            f"one VirtualService: {_mid(routes, 'cpu') * 1000:.0f} ms")  # fmt: skip
        before = cpu_seconds(control.pid)
        await asyncio.sleep(_IDLE_SECONDS)
        idle = (cpu_seconds(control.pid) - before) / _IDLE_SECONDS
        title = f"cluster of {shape.services:,} services, {shape.pods:,} pods, {shape.nodes} nodes"
        figures = [
            Figure(f"{title}: start, CPU", start, "s"),
            Figure(f"{title}: RSS after the start", started_size / _MEGABYTE, "MB"),
            Figure(f"{title}: {shape.nodes} certificates by token, CPU", certificates * 1000, "ms"),
            *_figures(f"{title}: first sync", first, "s", 1),
            Figure(f"{title}: first sync, calls per node", first.calls / shape.nodes, "", 1),
        ]
        for what, costs in (("one endpoint", endpoints), ("one VirtualService", routes)):
            middle = sorted(costs, key=lambda cost: cost.cpu)[len(costs) // 2]
            figures += _figures(f"{title}: {what}", middle, "ms", 1000)
        return [
            *figures,
            Figure(f"{title}: at rest, CPU", idle * 1000, "ms per second"),
            Figure(f"{title}: RSS", resident(control.pid) / _MEGABYTE, "MB", _GOAL_MEGABYTES),
            Figure(f"{title}: RSS, the most there was", _peak(control.pid) / _MEGABYTE, "MB"),
        ]

    async def _ready(self, control: Running) -> None:
        deadline = time.monotonic() + _PATIENCE
        while await _get("/ready") is None:
            if control.process.poll() is not None:
                raise Failed(f"the control plane exited with {control.process.returncode}")
            if time.monotonic() > deadline:
                raise Failed("the control plane did not become ready")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _cost(self, control: Running, streams: Running, change: Awaitable[None]) -> Cost:
        """Make the change and return its cost. The change must reach every stream."""
        await _ask(streams, {"do": "settle", "streams": 0, "quiet": 0.0})  # resets the counters
        translation = await _translation()
        cpu, began = cpu_seconds(control.pid), time.monotonic()
        await change
        got = await _ask(streams, {"do": "settle", "streams": self._shape.nodes, "quiet": _QUIET_SECONDS})
        while True:  # a pause is not the end: while the control plane is busy, it may send more
            await _rest(control.pid)
            more = await _ask(streams, {"do": "settle", "streams": 0, "quiet": _QUIET_SECONDS})
            if not more["bytes"]:
                break
            got = {**more, "streams": got["streams"], **{each: got[each] + more[each] for each in ("bytes", "calls")}}
        if got["trouble"]:
            self._say(f"a stream had to reconnect: {got['trouble']}")
        return Cost(cpu_seconds(control.pid) - cpu, await _translation() - translation, got, began)


async def _ask(process: Running, order: dict[str, Any]) -> dict[str, Any]:
    return await asyncio.to_thread(process.ask, order)


async def _rest(pid: int) -> None:
    """Wait until the process has finished its work: in two consecutive intervals it used less than `_RESTING` cores."""
    deadline, quiet, before = time.monotonic() + _PATIENCE, 0, cpu_seconds(pid)
    while quiet < 2:
        await asyncio.sleep(_LOOK_SECONDS)
        now = cpu_seconds(pid)
        quiet = quiet + 1 if now - before < _RESTING * _LOOK_SECONDS else 0
        before = now
        if time.monotonic() > deadline:
            raise Failed(f"the control plane is still busy after {_PATIENCE:.0f} s")


async def _translation() -> float:
    """Return the CPU seconds of translation so far, from the control plane's metric."""
    text = await _get("/metrics") or ""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "weft_translation_cpu_seconds_total":
            return float(value)
    raise Failed("the control plane has no metric weft_translation_cpu_seconds_total")


async def _get(path: str) -> str | None:
    """GET `path` from the control plane's monitoring port and return the body. None: no connection, or the status is
    not 200."""
    try:
        async with aiohttp.ClientSession() as session, session.get(_MONITORING + path) as answer:
            return await answer.text() if answer.status == 200 else None
    except aiohttp.ClientError:
        return None


async def _roots(client: Client) -> str:
    """Return the CA's root certificates from the ConfigMap that the control plane publishes for pods. Wait until it
    exists."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(ApiError):
            config_map = await client.get(CONFIG_MAPS, "istio-ca-root-cert", namespace=ROOT)
            return str(config_map["data"]["root-cert.pem"])
        await asyncio.sleep(_LOOK_SECONDS)
    raise Failed("the control plane did not publish its root certificate")


def _figures(name: str, cost: Cost, unit: str, times: int) -> list[Figure]:
    return [
        Figure(f"{name}, CPU", cost.cpu * times, unit),
        Figure(f"{name}, translation", cost.translation * times, unit),
        Figure(f"{name}, sent", cost.bytes / _MEGABYTE, "MB"),
        Figure(f"{name}, until the last of {cost.streams} nodes has it", cost.took * times, unit),
    ]


def _mid(costs: list[Cost], what: str) -> float:
    return float(median(getattr(cost, what) for cost in costs))


def _peak(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def main() -> None:
    """Run the rig inside the network namespace that `run` created, and print progress and figures as JSON lines."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    effort = Effort(quick=parser.parse_args().quick)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))

    def send(key: str, value: Any) -> None:
        print(json.dumps({key: value}), flush=True)

    shape = Shape(services=effort.of(1000, 40), nodes=effort.of(100, 5))
    result: tuple[str, Any]
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        rig = Rig(shape, effort.of(5, 2), Path(directory), lambda line: send("say", line))
        try:
            with started(Path(directory) / "api-server") as server:
                result = "figures", msgspec.to_builtins(asyncio.run(rig.run(server)))
        except Exception as failed:  # noqa: BLE001 - reported to the parent process
            result = "failed", f"{type(failed).__name__}: {failed}"
    send(*result)  # must be the last line: the reader then ends this process


if __name__ == "__main__":
    main()
