from __future__ import annotations

import asyncio

import pytest

from eventually import eventually
from weft.local.error import LocalError
from weft.local.replicas import Replicas
from weft.local.status import PodPhase
from weft.model.workload import RestartPolicy, Workload


class Standin:
    """A fake pod without namespaces or processes: it starts, becomes ready and ends when the test decides."""

    def __init__(self, name: str, workload: Workload) -> None:
        self.name = name
        self.plan = type("Plan", (), {"workload": workload})()
        self.phase = PodPhase.STARTING
        self.begun = asyncio.Event()
        self.running = False
        self._ending = asyncio.Event()

    @property
    def ready(self) -> bool:
        return self.phase is PodPhase.READY

    @property
    def ended(self) -> bool:
        return self.phase in (PodPhase.COMPLETED, PodPhase.FAILED)

    async def run(self) -> None:
        self.running = True
        await self._ending.wait()
        self.running = False
        self.begun.set()

    def end(self, *, drain: bool = True) -> None:
        self._ending.set()


class Stage:
    def __init__(self, slots: int = 10) -> None:
        self.freed: list[tuple[str, bool]] = []
        self.replicas = Replicas(self.make, self.free, asyncio.Semaphore(slots))

    def make(self, name: str, workload: Workload) -> Standin:
        if name == "web-13":
            raise LocalError("no address is left")
        return Standin(name, workload)

    def free(self, pod: Standin, *, gone: bool) -> None:
        self.freed.append((pod.name, gone))

    def names(self) -> list[str]:
        return sorted(pod.name for pod in self.replicas.pods)

    async def settle(self) -> None:
        for _ in range(30):
            await asyncio.sleep(0)

    async def serve_all(self) -> None:
        for pod in self.replicas.pods:
            pod.phase = PodPhase.READY
            pod.begun.set()
        self.replicas.wake()
        await self.settle()


def web(replicas: int, **fields: object) -> Workload:
    return Workload("web", "shop", ("true",), replicas=replicas, **fields)


async def test_pods_are_numbered_from_zero_and_free_numbers_come_back():
    stage = Stage()
    stage.replicas.want(web(3))
    await stage.settle()
    assert stage.names() == ["web-0", "web-1", "web-2"]
    stage.replicas.want(web(1))
    await stage.settle()
    assert stage.names() == ["web-0"]
    stage.replicas.want(web(2))
    await stage.settle()
    assert stage.names() == ["web-0", "web-1"]
    await stage.replicas.stop()


async def test_the_number_of_concurrent_starts_is_limited():
    stage = Stage(slots=2)
    stage.replicas.want(web(5))
    await stage.settle()
    assert sum(pod.running for pod in stage.replicas.pods) == 2
    await stage.serve_all()
    await stage.serve_all()
    assert sum(pod.running for pod in stage.replicas.pods) == 5
    await stage.replicas.stop()


async def test_a_change_replaces_one_pod_after_the_other():
    stage = Stage()
    stage.replicas.want(web(2))
    await stage.settle()
    await stage.serve_all()
    stage.replicas.want(web(2, labels=(("version", "v2"),)))
    for _ in range(6):
        assert len([pod for pod in stage.replicas.pods if pod.ready]) >= 2
        await stage.settle()
        await stage.serve_all()
    assert len(stage.replicas.pods) == 2
    assert all(pod.plan.workload.labels for pod in stage.replicas.pods)
    await stage.replicas.stop()


async def test_a_completed_job_stays_until_its_workload_is_gone():
    stage = Stage()
    stage.replicas.want(web(1, restart=RestartPolicy.NEVER))
    await stage.settle()
    (pod,) = stage.replicas.pods
    pod.phase = PodPhase.COMPLETED
    pod.end()
    await stage.settle()
    assert stage.names() == ["web-0"] and stage.freed == [("web-0", False)]
    stage.replicas.want(None)
    await stage.settle()
    assert stage.names() == [] and stage.freed[-1] == ("web-0", True)
    assert stage.replicas.count == 0


async def test_pods_can_be_killed_even_while_they_wait_for_their_turn():
    stage = Stage(slots=1)
    stage.replicas.want(web(3))
    await stage.settle()
    async with asyncio.timeout(30):
        await stage.replicas.kill()
    assert stage.names() == []
    assert sorted(stage.freed) == [(f"web-{number}", True) for number in range(3)]


async def test_a_pod_that_cannot_be_made_is_tried_again_and_does_not_end_the_loop(caplog, monkeypatch):
    monkeypatch.setattr("weft.local.replicas._RETRY", 0.01)
    stage = Stage()
    stage.replicas.want(web(14))
    await stage.settle()
    assert len(stage.names()) == 13 and "no address is left" in caplog.text
    caplog.clear()
    await eventually(lambda: "no address is left" in caplog.text)
    stage.replicas.want(web(1))
    await stage.settle()
    assert stage.names() == ["web-0"]
    await stage.replicas.stop()


@pytest.mark.parametrize("when", ["waiting", "running"])
async def test_stopping_waits_until_every_pod_is_gone(when):
    stage = Stage(slots=1 if when == "waiting" else 9)
    stage.replicas.want(web(2))
    await stage.settle()
    async with asyncio.timeout(30):
        await stage.replicas.stop()
    assert stage.names() == []
