from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from eventually import eventually
from weft.cluster import overview
from weft.cluster.overview import Overview
from weft.kube.pods import PodIndex, PodRecord
from weft.model.group import Group, ProxyKind

WEB, SHELL = (Group(ProxyKind.SIDECAR, "shop", (("app", name),)) for name in ("web", "shell"))


class Plane:
    def __init__(self):
        self.held = Counter()

    def hold(self, group):
        self.held[group] += 1

    def release(self, group):
        self.held[group] -= 1


def pod(name, group=WEB, *, meshed=True):
    return PodRecord("shop", name, f"uid-of-{name}", group, "node", (), meshed)


@pytest.fixture
async def looking(monkeypatch):
    monkeypatch.setattr(overview, "_PAUSE", 0.0)
    plane, pods = Plane(), PodIndex()
    pods.put(pod("a"))
    task = asyncio.create_task(Overview(plane, pods).run())
    yield plane, pods, task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_each_group_is_held_once_while_one_of_its_pods_exists(looking):
    plane, pods, _ = looking
    pods.put(pod("b"))
    pods.put(pod("c", SHELL))
    await eventually(lambda: +plane.held == Counter({WEB: 1, SHELL: 1}))
    pods.discard("shop", "c")
    await eventually(lambda: +plane.held == Counter({WEB: 1}))
    pods.discard("shop", "a")
    pods.put(pod("b", SHELL))
    await eventually(lambda: +plane.held == Counter({SHELL: 1}))


async def test_pods_without_a_proxy_see_nothing(looking):
    plane, pods, _ = looking
    pods.put(pod("plain", SHELL, meshed=False))
    pods.put(pod("late", SHELL))
    await eventually(lambda: plane.held[SHELL] == 1)
    pods.put(pod("late", SHELL, meshed=False))
    await eventually(lambda: plane.held[SHELL] == 0)


async def test_a_replica_that_no_longer_leads_releases_its_groups(looking):
    plane, pods, task = looking
    await eventually(lambda: plane.held[WEB] == 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not +plane.held
    assert pods.on_change == []
