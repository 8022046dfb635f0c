"""Looks at the proxies of a mesh, often while somebody watches and seldom otherwise: traffic for the live view, and
trouble worth telling. It asks each Envoy for a few counters; one that does not answer is simply left out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Protocol

from weft.base.problem import Problem, Severity, Where
from weft.control.plane import ControlPlane
from weft.envoy.binary import EnvoyError
from weft.local.pod import Pod
from weft.local.traffic import STATS_QUERY, Traffic, read_stats
from weft.model.service import Protocol as Spoken
from weft.netns.namespace import NetworkError

log = logging.getLogger("weft.local.observer")

BEAT = 1.0  # seconds, while somebody looks
SLOW_BEAT = 10.0
ATTENTION = 5.0  # seconds that one look at the status counts as watching
_AT_ONCE = 4
_INBOUND_PORT = 15006


class Observed(Protocol):
    control: ControlPlane

    def pods(self) -> list[Pod]: ...


class Observer:
    def __init__(self, engine: Observed) -> None:
        self.traffic = Traffic()
        self._engine = engine
        self._looked = 0.0
        self._woken = asyncio.Event()

    def look(self) -> None:
        """Somebody wants to see what is going on."""
        now = time.monotonic()
        if now - self._looked > ATTENTION:
            self._woken.set()
        self._looked = now

    def forget(self, pod: Pod) -> None:
        self.traffic.forget(pod.plan.key)
        self._engine.control.note(_topic(pod), ())

    async def run(self) -> None:
        while True:
            await self.scrape()
            watched = time.monotonic() - self._looked <= ATTENTION
            try:
                async with asyncio.timeout(BEAT if watched else SLOW_BEAT):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()

    async def scrape(self) -> None:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def ask(pod: Pod) -> None:
            async with slots:
                await self._scrape_pod(pod)

        pods = [pod for pod in self._engine.pods() if pod.proxy is not None and pod.proxy.ready]
        await asyncio.gather(*(ask(pod) for pod in pods))

    async def _scrape_pod(self, pod: Pod) -> None:
        if pod.proxy is None or not pod.proxy.ready:
            return
        try:
            scrape = read_stats(await pod.proxy.admin.read("/stats", STATS_QUERY))
        except (EnvoyError, NetworkError, OSError) as error:
            log.debug("%s: %s", pod.plan.key, error)
            return
        if pod not in self._engine.pods():
            return
        source = f"{pod.plan.workload.namespace}/{pod.plan.workload.name}"
        self.traffic.record(pod.plan.key, source, scrape.edges, time.monotonic())
        self._engine.control.note(_topic(pod), late_protocols(pod, scrape.timeouts))


def late_protocols(pod: Pod, timeouts: Mapping[tuple[str, int], int]) -> list[Problem]:
    """Connections on which nobody spoke until the proxy stopped waiting: each was late by that, at least once."""
    workload = pod.plan.workload
    origin = workload.origin
    where = Where(
        origin.file if origin else "", origin.line if origin else 0, f"Workload {workload.namespace}/{workload.name}"
    )
    problems = []
    # How many is not said: a problem whose words change would be solved and found anew with each look.
    for address, port in sorted(timeouts):
        if port == _INBOUND_PORT:
            undeclared = [str(each.number) for each in workload.ports if each.protocol is Spoken.UNDECLARED]
            ports = f" (undeclared here: {', '.join(undeclared)})" if undeclared else ""
            place = f"into a port whose protocol is not declared{ports}"
        else:
            place = f"to {address}:{port}"
        what = f"connections {place} waited for first bytes that did not come, and were then passed on as TCP"
        hint = "declare the port's `appProtocol` in its Service (tcp, mysql, …): then nothing waits"
        problems.append(Problem(where, what, hint, Severity.WARNING))
    return problems


def _topic(pod: Pod) -> str:
    return f"detection {pod.plan.key}"
