"""Memory per sidecar in the demo, under its own load: what is its alone, and with its share of what all share."""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import median

from bench import mesh
from bench.figure import Effort, Figure, Say
from bench.process import Failed, memory

_SHOP = Path(__file__).parents[1] / "examples" / "shop"
_MEGABYTE = 1_000_000


def run(effort: Effort, say: Say) -> list[Figure]:
    measured = asyncio.run(_measure(effort.of(20, 5), say))
    private = [each[0] / _MEGABYTE for each in measured]
    proportional = [each[1] / _MEGABYTE for each in measured]
    name = f"memory per sidecar in the demo ({len(measured)} sidecars)"
    return [
        Figure(f"{name}: private, median", median(private), "MB", 20),
        Figure(f"{name}: private, largest", max(private), "MB", 20),
        Figure(f"{name}: proportional, median", median(proportional), "MB"),
    ]


async def _measure(seconds: int, say: Say) -> list[tuple[int, int]]:
    async with mesh.running(_SHOP) as engine:
        await mesh.until("the shop has pods", lambda: bool(engine.pods()))
        await mesh.until("the shop is ready", lambda: all(pod.ready or pod.ended for pod in engine.pods()))
        say(f"the shop is ready; its load runs for {seconds} s")
        await asyncio.sleep(seconds)
        pids = [pod.proxy.pid for pod in engine.pods() if pod.proxy is not None and pod.proxy.pid]
        if not pids:
            raise Failed("the shop runs without a sidecar")
        return [memory(pid) for pid in pids]
