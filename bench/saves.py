"""Measures the time from saving a file until every Envoy has ACKed the change: twenty pods, and a route that
changes."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from pathlib import Path

from bench import mesh
from bench.figure import Effort, Figure, Say, quantile
from weft.local.engine import Engine
from weft.xds.types import ROUTE

_PODS = 20
_WORKLOADS = 4
_ACK_SECONDS = 10.0


def run(effort: Effort, say: Say) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        took = asyncio.run(_measure(Path(directory), effort.of(60, 10), say))
    name = f"file saved → every Envoy has ACKed, {_PODS} pods"
    return [
        Figure(f"{name}: p50", quantile(took, 0.5) * 1000, "ms", 100),
        Figure(f"{name}: p99", quantile(took, 0.99) * 1000, "ms", 250),
    ]


async def _measure(directory: Path, saves: int, say: Say) -> list[float]:
    names = [f"light-{number}" for number in range(_WORKLOADS)]
    for name in names:
        replicas = _PODS // _WORKLOADS
        mesh.save(directory / f"{name}.yaml", mesh.workload(name, replicas=replicas), mesh.service(name, 80, 8080))
    routes = directory / "routes.yaml"
    mesh.save(routes, mesh.weighted_route(names[0], {names[0]: 100, names[1]: 0}))
    async with mesh.running(directory) as engine:
        await mesh.until_ready(engine, _PODS)
        await mesh.until("every proxy to be in sync", lambda: _in_sync(engine))
        say(f"{_PODS} pods are ready")
        took = []
        for number in range(saves):
            # A random pause, so that the saves are not in step with code that polls or debounces.
            await asyncio.sleep(random.uniform(0.1, 0.3))
            weight = 1 + number % 99
            acked = _every_ack(engine)
            saved = time.monotonic()
            mesh.save(routes, mesh.weighted_route(names[0], {names[0]: 100 - weight, names[1]: weight}))
            async with asyncio.timeout(_ACK_SECONDS):
                took.append(await acked - saved)
        say(f"{saves} saves: the fastest took {min(took) * 1000:.0f} ms, the slowest {max(took) * 1000:.0f} ms")
    return took


def _every_ack(engine: Engine) -> asyncio.Future[float]:
    """Return a future for the time at which the last of all proxies has ACKed a new version of its routes. All
    proxies must be in sync when this is called, so that no earlier ACK is pending."""
    done: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    streams: set[int] = set()
    original = type(engine.control).acked

    def acked(stream_id: int, type_url: str, nonce: str) -> None:
        original(engine.control, stream_id, type_url, nonce)
        if type_url == ROUTE:
            streams.add(stream_id)
        if len(streams) == _PODS and not done.done():
            done.set_result(time.monotonic())

    engine.control.acked = acked  # type: ignore[method-assign]
    return done


def _in_sync(engine: Engine) -> bool:
    proxies = engine.control.proxies()
    return len(proxies) == _PODS and all(proxy.sync == "SYNCED" for proxy in proxies)
