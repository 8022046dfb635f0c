"""The pods of one Workload: starts, replaces and ends pods until they match the Workload.

`want` sets the Workload (None: deleted), and `wake` signals that a pod has changed. A loop then takes the next step
that `local/rollout.py` computes. Pods end concurrently; the name of a pod is free again when the pod has been removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count
from typing import Protocol

from weft.local.error import LocalError
from weft.local.pod import LocalPod
from weft.local.rollout import Present, next_step, template
from weft.model.workload import Workload

log = logging.getLogger("weft.local.replicas")

_RETRY = 1.0  # seconds before the next attempt, if a pod's directory could not be created


class FreePod(Protocol):
    def __call__(self, pod: LocalPod, *, gone: bool) -> None: ...


class Replicas:
    """The pods of one Workload. `slots` limits how many pods of the whole mesh start at the same time."""

    def __init__(
        self, make_pod: Callable[[str, Workload], LocalPod], free_pod: FreePod, slots: asyncio.Semaphore
    ) -> None:
        self._make_pod, self._free_pod, self._slots = make_pod, free_pod, slots
        self._wanted: Workload | None = None
        self._pods: dict[str, LocalPod] = {}
        self._ending: set[str] = set()
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._woken = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    @property
    def pods(self) -> tuple[LocalPod, ...]:
        return tuple(self._pods.values())

    @property
    def wanted(self) -> bool:
        return self._wanted is not None

    @property
    def count(self) -> int:
        return self._wanted.replicas if self._wanted is not None else 0

    def want(self, workload: Workload | None) -> None:
        self._wanted = workload
        self._woken.set()
        if self._loop is None:
            self._loop = asyncio.create_task(self._reconcile())

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        """Stop the loop. Called when the Workload is deleted and its last pod has been removed."""
        if self._loop is not None:
            self._loop.cancel()

    async def stop(self) -> None:
        """End all pods without draining, and return when they have been removed."""
        if self._loop is not None:
            self._loop.cancel()
        for name in tuple(self._pods):
            self._end(name, drain=False)
        if self._runs:
            await asyncio.wait(tuple(self._runs.values()))

    async def kill(self) -> None:
        """Cancel all pods, which kills their processes, and return when they have been removed."""
        if self._loop is not None:
            self._loop.cancel()
        for run in tuple(self._runs.values()):
            run.cancel()
        if self._runs:
            await asyncio.wait(tuple(self._runs.values()))

    async def _reconcile(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            step = next_step(self._wanted, self._present())
            for name in step.end:
                self._end(name)
            for _ in range(step.start):
                self._start()

    def _present(self) -> list[Present]:
        wanted = template(self._wanted) if self._wanted is not None else None
        return [
            Present(name, fresh=template(pod.plan.workload) == wanted, ready=pod.ready, completed=pod.ended)
            for name, pod in sorted(self._pods.items())
            if name not in self._ending
        ]

    def _start(self) -> None:
        workload = self._wanted
        if workload is None:
            return
        # The lowest free number, so that a restarted pod gets the same name, and with it the same address.
        name = next(each for each in (f"{workload.name}-{number}" for number in count()) if each not in self._pods)
        try:
            pod = self._make_pod(name, workload)
        except (LocalError, OSError) as error:
            log.error("cannot create pod %s/%s, trying again in %.0f s: %s", workload.namespace, name, _RETRY, error)
            asyncio.get_running_loop().call_later(_RETRY, self.wake)
            return
        self._pods[name] = pod
        self._runs[name] = asyncio.create_task(self._run(name, pod))

    def _end(self, name: str, *, drain: bool = True) -> None:
        self._ending.add(name)
        pod, run = self._pods[name], self._runs.get(name)
        pod.end(drain=drain)
        if run is None or run.done():
            self._forget(name, pod)

    async def _run(self, name: str, pod: LocalPod) -> None:
        try:
            async with self._slots:
                running = asyncio.ensure_future(pod.run())
                begun = asyncio.ensure_future(pod.begun.wait())
                try:
                    await asyncio.wait({running, begun}, return_when=asyncio.FIRST_COMPLETED)
                except BaseException:
                    running.cancel()
                    await asyncio.wait({running})
                    raise
                finally:
                    begun.cancel()
            try:
                await asyncio.shield(running)
            except asyncio.CancelledError:
                running.cancel()
                await asyncio.wait({running})
                raise
        finally:
            self._runs.pop(name, None)
            if pod.ended and name not in self._ending:
                self._free_pod(pod, gone=False)
                self._woken.set()
            else:
                self._forget(name, pod)

    def _forget(self, name: str, pod: LocalPod) -> None:
        if self._pods.get(name) is pod:
            del self._pods[name]
            self._ending.discard(name)
            self._free_pod(pod, gone=True)
        self._woken.set()
