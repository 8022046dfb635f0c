"""Measures the memory per sidecar in the demo, under the demo's own load: private memory, and proportional memory,
which includes a share of the pages that several processes share."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from statistics import median

from bench import mesh
from bench.bare import plain_proxy, start_envoy, wait_open
from bench.figure import Effort, Figure, Say
from bench.process import Failed, memory

_SHOP = Path(__file__).parents[1] / "examples" / "shop"
_MEGABYTE = 1_000_000
_BARE_PORT = 9001


def run(effort: Effort, say: Say) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        measured, bare = asyncio.run(_measure(effort.of(20, 5), Path(directory), say))
    private = [each[0] / _MEGABYTE for each in measured]
    proportional = [each[1] / _MEGABYTE for each in measured]
    name = f"memory per sidecar in the demo ({len(measured)} sidecars)"
    return [
        Figure(f"{name}: private, median", median(private), "MB", 20, bare[0] / _MEGABYTE),
        Figure(f"{name}: private, largest", max(private), "MB", 20, bare[0] / _MEGABYTE),
        Figure(f"{name}: proportional, median", median(proportional), "MB", None, bare[1] / _MEGABYTE),
    ]


Memory = tuple[int, int]  # bytes: private, proportional


async def _measure(seconds: int, directory: Path, say: Say) -> tuple[list[Memory], Memory]:
    """Return the memory of each sidecar, and as baseline that of an idle bare Envoy in one of the pods."""
    async with mesh.running(_SHOP) as engine:
        await mesh.until("pods of the shop", lambda: bool(engine.pods()))
        await mesh.until("the shop to be ready", lambda: all(pod.ready or pod.ended for pod in engine.pods()))
        place = next(pod.namespace for pod in engine.pods() if pod.ready)
        idle = plain_proxy(("127.0.0.1", _BARE_PORT), ("127.0.0.1", 1), http2_in=False, http2_out=False)
        with start_envoy("bare", idle, namespace=place, core=None, directory=directory) as bare:
            wait_open(place, ("127.0.0.1", _BARE_PORT))
            say(f"the shop is ready; its load runs for {seconds} s")
            await asyncio.sleep(seconds)
            pids = [pod.proxy.pid for pod in engine.pods() if pod.proxy is not None and pod.proxy.pid]
            if not pids:
                raise Failed("no pod of the shop has a sidecar")
            return [memory(pid) for pid in pids], memory(bare.pid)
