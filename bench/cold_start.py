"""Measures a pod's cold start: namespace created → Envoy has its config and interception is on → first intercepted
request answered.

The pods are pods of weft's local engine; the rig creates one new workload after the other. The rig polls the
engine's state every millisecond, so the engine needs no code for this measurement.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

from bench import mesh
from bench.figure import Effort, Figure, Say, quantile
from bench.load import BODY
from bench.process import Failed, start_server
from weft.local.engine import Engine
from weft.local.pod import LocalPod
from weft.netns.namespace import exists

_STEPS = ("interface and addresses", "Envoy started", "Envoy asks for its config", "config taken, interception on")
_LOOK_SECONDS = 0.001


def run(effort: Effort, say: Say) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        starts = asyncio.run(_measure(Path(directory), effort.of(15, 4), say))
    totals = [start.total for start in starts]
    name = "pod cold start"
    return [
        Figure(f"{name}: p50 (Istio's users report 1–3 s)", quantile(totals, 0.5), "s", 0.5),
        Figure(f"{name}: slowest of {len(totals)}", max(totals), "s"),
        *(
            Figure(f"{name}: {step}", median(start.steps[number] for start in starts) * 1000, "ms")
            for number, step in enumerate((*_STEPS, "first request answered"))
        ),
        Figure(f"{name}: file saved → first request answered, p50", median(start.since_saved for start in starts), "s"),
    ]


class _Start:
    def __init__(self, saved: float, moments: list[float]) -> None:
        self.total = moments[-1] - moments[0]
        self.since_saved = moments[-1] - saved
        self.steps = [after - before for before, after in pairwise(moments)]


async def _measure(directory: Path, pods: int, say: Say) -> list[_Start]:
    mesh.save(directory / "server.yaml", mesh.workload("server"), mesh.service("server", 80, 8080))
    async with mesh.running(directory) as engine:
        await mesh.until_ready(engine, 1)
        server = engine.find_pod("server")
        with start_server(server.namespace, None, [8080]):
            address = (mesh.service_address(engine, "server"), 80)
            starts = []
            for number in range(pods):
                starts.append(await _cold_start(engine, directory, f"cold-{number}", address))
                await mesh.until_ready(engine, number + 2)
            say(f"{pods} pods, one after the other: {', '.join(f'{start.total:.2f}' for start in starts)} s")
    return starts


async def _cold_start(engine: Engine, directory: Path, name: str, address: tuple[str, int]) -> _Start:
    saved = time.monotonic()
    mesh.save(directory / f"{name}.yaml", mesh.workload(name))
    pod = await _look_for(engine, name)
    moments: list[float] = []

    async def moment(what: str, holds: mesh.Holds) -> None:
        await mesh.until(what, holds, every=_LOOK_SECONDS)
        moments.append(time.monotonic())

    await moment("the pod's namespace", lambda: exists(pod.namespace))
    await moment("start of the pod's proxy", lambda: pod.proxy is not None)
    await moment("Envoy's process", lambda: pod.proxy is not None and pod.proxy.pid != 0)
    await moment(
        "Envoy to connect to the control plane", lambda: any(p.node_id == pod.node_id for p in engine.control.proxies())
    )
    await moment("Envoy to be ready", lambda: pod.proxy is not None and pod.proxy.ready)
    await asyncio.to_thread(_request, pod, address)
    moments.append(time.monotonic())
    return _Start(saved, moments)


async def _look_for(engine: Engine, name: str) -> LocalPod:
    pods: list[LocalPod] = []

    def exists() -> bool:
        pods.extend(pod for pod in engine.pods() if pod.plan.workload.name == name)
        return bool(pods)

    await mesh.until(f"a pod of {name}", exists, every=_LOOK_SECONDS)
    return pods[0]


def _request(pod: LocalPod, address: tuple[str, int]) -> None:
    answer = mesh.request(pod, address, "server")
    if not answer.startswith(b"HTTP/1.1 200") or not answer.endswith(BODY) or b"x-envoy" not in answer:
        raise Failed(f"{pod.plan.name} got an unexpected response: {answer[:200]!r}")
