from __future__ import annotations

import asyncio

from bench.kube_mesh import Condition, ContainerState, Pods, Status

READY = Status(conditions=[Condition("Ready", "True")])


async def test_returns_when_a_pod_became_ready_and_not_when_it_was_seen_again():
    pods = Pods()
    pods._take("web", Status(), 1.0)
    waiting = asyncio.create_task(pods.until_ready("web"))
    await asyncio.sleep(0)
    pods._take("web", READY, 2.0)
    pods._take("web", READY, 3.0)
    pods.changed.set()
    assert await waiting == 2.0
    pods._take("web", Status(), 4.0)
    assert await pods.until_ready("web", ready=False) == 4.0
    pods._take("web", READY, 5.0)
    assert await pods.until_ready("web") == 5.0


def test_a_container_is_known_by_the_id_that_containerd_gave_it():
    status = Status(init_container_statuses=[ContainerState("istio-proxy", "containerd://abc")])
    assert status.container("istio-proxy") == "abc"
    assert status.container("app") == ""
