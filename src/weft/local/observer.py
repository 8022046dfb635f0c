"""Scrapes counters of every proxy of a mesh: traffic for the live view, and warnings about protocol detection.

The interval is short while a user watches the status, and long otherwise. With many proxies it is longer: scrapes take
a fifth of the time at most. A proxy that does not answer is skipped.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Protocol

from weft.control.plane import ControlPlane
from weft.envoy.binary import EnvoyError
from weft.local.detection import Detection
from weft.local.pod import LocalPod
from weft.local.traffic import STATS_QUERY, Traffic, read_stats
from weft.netns.namespace import NetworkError

log = logging.getLogger("weft.local.observer")

BEAT = 1.0  # seconds between two scrapes while a user watches
SLOW_BEAT = 10.0
ATTENTION = 5.0  # seconds that one request for the status counts as watching
_AT_ONCE = 4
_REST = 4  # times the duration of a scrape that passes before the next one


class Observed(Protocol):
    control: ControlPlane

    def pods(self) -> list[LocalPod]: ...


class TrafficObserver:
    def __init__(self, engine: Observed) -> None:
        self.traffic = Traffic()
        self._detection = Detection()
        self._engine = engine
        self._looked = 0.0
        self._woken = asyncio.Event()

    def look(self) -> None:
        """Record that a user has requested the status, so that the next scrapes follow at the short interval."""
        now = time.monotonic()
        if now - self._looked > ATTENTION:
            self._woken.set()
        self._looked = now

    def forget(self, pod: LocalPod) -> None:
        self.traffic.forget(pod.plan.key)
        self._detection.forget(pod.plan.key)
        self._engine.control.note(_topic(pod), ())

    async def run(self) -> None:
        while True:
            begun = time.monotonic()
            await self.scrape()
            rest = _REST * (time.monotonic() - begun)
            watched = time.monotonic() - self._looked <= ATTENTION
            try:
                async with asyncio.timeout(max(rest, BEAT if watched else SLOW_BEAT)):
                    await self._woken.wait()
                    await asyncio.sleep(rest)
            except TimeoutError:
                pass
            self._woken.clear()

    async def scrape(self) -> None:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def ask(pod: LocalPod) -> None:
            async with slots:
                await self._scrape_pod(pod)

        pods = [pod for pod in self._engine.pods() if pod.proxy is not None and pod.proxy.ready]
        await asyncio.gather(*(ask(pod) for pod in pods))

    async def _scrape_pod(self, pod: LocalPod) -> None:
        if pod.proxy is None or not pod.proxy.ready:
            return
        try:
            scrape = read_stats(await pod.proxy.admin.read("/stats", STATS_QUERY))
        except (EnvoyError, NetworkError, OSError) as error:
            log.debug("%s: %s", pod.plan.key, error)
            return
        if pod not in self._engine.pods():
            return
        key, workload, control = pod.plan.key, pod.plan.workload, self._engine.control
        source = f"{workload.namespace}/{workload.name}"
        self.traffic.record(key, source, scrape.edges, time.monotonic())
        control.note(_topic(pod), self._detection.problems(key, workload, scrape, control.mesh))


def _topic(pod: LocalPod) -> str:
    return f"detection {pod.plan.key}"
