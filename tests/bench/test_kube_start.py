from __future__ import annotations

import pytest
from bench.kube_mesh import ContainerState, Status
from bench.kube_start import Start, _figures, lives_of

LINES = [
    '2026-11-16 05:43:10.500000001 +0000 UTC k8s.io /tasks/create {"container_id":"init"}',
    '2026-11-16 05:43:11 +0000 UTC k8s.io /tasks/start {"container_id":"init","pid":10}',
    '2026-11-16 05:43:11.25 +0000 UTC k8s.io /tasks/exit {"container_id":"init","id":"init","pid":10}',
    '2026-11-16 05:43:12 +0000 UTC k8s.io /tasks/start {"container_id":"proxy","pid":11}',
    '2026-11-16 05:43:12.5 +0000 UTC k8s.io /tasks/exit {"container_id":"proxy","id":"probe","pid":12}',
    '2026-11-16 05:43:13 +0000 UTC k8s.io /tasks/start {"container_id":"app","pid":13}',
    "ctr: the end",
]
BEGAN = 1794807791.0  # the first start in these lines


def test_reads_when_containers_began_and_ended_and_not_what_was_executed_in_them():
    lives = lives_of(LINES)
    assert lives["init"].began == BEGAN
    assert lives["init"].ended == pytest.approx(BEGAN + 0.25)
    assert lives["proxy"].ended == 0.0


def test_the_steps_of_a_start_add_up_to_all_of_it():
    containers = [ContainerState("app", "containerd://app")]
    inits = [ContainerState("istio-init", "containerd://init"), ContainerState("istio-proxy", "containerd://proxy")]
    injected = Start(BEGAN - 1, BEGAN + 3, Status(container_statuses=containers, init_container_statuses=inits))
    plain = Start(BEGAN + 1.5, BEGAN + 2.5, Status(container_statuses=containers))
    empty = Start(BEGAN, BEGAN + 3.5, Status(container_statuses=containers))
    starts = {"plain": [plain], "empty": [empty], "injected": [injected]}
    starts |= {kind: [empty] for kind in ("no-native", "by-node", "both")}
    whole, late, more, kubelets, *rest = _figures(starts, lives_of(LINES))
    chosen, steps = rest[:6], rest[6:]
    assert [(each.value, each.goal) for each in chosen] == [(3.5, None), (2.5, 1.0)] * 3
    assert (whole.value, whole.baseline) == (late.value, late.baseline) == (4.0, 1.0)
    assert (kubelets.value, kubelets.baseline) == (3.5, 1.0)
    assert (more.value, more.goal) == (3.0, 1.0)
    assert sum(step.value for step in steps) == pytest.approx(whole.value)
    assert sum(step.baseline or 0 for step in steps) == pytest.approx(whole.baseline)
