from __future__ import annotations

import pytest

from weft.local.rollout import Present, RolloutStep, next_step, template
from weft.model.names import ObjectKey, Origin
from weft.model.workload import RestartPolicy, Workload


def workload(replicas: int = 2, restart: RestartPolicy = RestartPolicy.ALWAYS) -> Workload:
    return Workload("web", "shop", ("true",), replicas=replicas, restart=restart)


def fresh(name: str, *, ready: bool = True, completed: bool = False) -> Present:
    return Present(name, fresh=True, ready=ready, completed=completed)


def stale(name: str, *, ready: bool = True) -> Present:
    return Present(name, fresh=False, ready=ready)


@pytest.mark.parametrize(
    ("pods", "step"),
    [
        ([], RolloutStep(start=2)),
        ([fresh("a")], RolloutStep(start=1)),
        ([fresh("a", ready=False), fresh("b")], RolloutStep()),
        ([fresh("a"), fresh("b"), fresh("c")], RolloutStep(end=("c",))),
    ],
)
def test_the_number_of_pods_follows_the_replicas(pods, step):
    assert next_step(workload(), pods) == step


def test_a_workload_that_is_gone_ends_all_its_pods():
    assert next_step(None, [fresh("a"), stale("b")]) == RolloutStep(end=("a", "b"))


def test_a_change_starts_one_new_pod_and_ends_an_old_one_only_when_it_serves():
    wanted = workload(2)
    assert next_step(wanted, [stale("a"), stale("b")]) == RolloutStep(start=1)
    assert next_step(wanted, [stale("a"), stale("b"), fresh("c", ready=False)]) == RolloutStep()
    assert next_step(wanted, [stale("a"), stale("b"), fresh("c")]) == RolloutStep(end=("b",))
    assert next_step(wanted, [stale("a"), fresh("c")]) == RolloutStep(start=1)
    assert next_step(wanted, [stale("a"), fresh("c"), fresh("d")]) == RolloutStep(end=("a",))
    assert next_step(wanted, [fresh("c"), fresh("d")]) == RolloutStep()


def test_an_old_pod_that_serves_is_kept_longer_than_one_that_does_not():
    assert next_step(workload(2), [stale("a", ready=False), stale("b"), fresh("c")]) == RolloutStep(end=("a",))


def test_old_pods_that_never_served_do_not_hold_up_their_repair():
    step = next_step(workload(1), [stale("a", ready=False)])
    assert step == RolloutStep(start=1, end=("a",))


def test_a_new_version_that_never_becomes_ready_leaves_the_old_one_alone():
    assert next_step(workload(1), [stale("a"), fresh("b", ready=False)]) == RolloutStep()


def test_a_change_to_fewer_replicas_ends_what_is_too_many():
    assert next_step(workload(1), [stale("a"), stale("b"), stale("c")]) == RolloutStep(end=("b", "c"))
    assert next_step(workload(0), [stale("a")]) == RolloutStep(end=("a",))


def test_a_changed_job_runs_again_only_after_its_old_run_is_gone():
    job = workload(1, RestartPolicy.NEVER)
    assert next_step(job, [stale("a")]) == RolloutStep(end=("a",))
    assert next_step(job, []) == RolloutStep(start=1)
    assert next_step(job, [fresh("a", ready=False, completed=True)]) == RolloutStep()


def test_only_what_a_pod_is_made_from_makes_it_stale():
    first = workload(1)
    moved = Workload(
        "web", "shop", ("true",), replicas=5, origin=Origin(ObjectKey("Workload", "shop", "web"), "v2", "b.yaml", 9)
    )
    assert template(first) == template(moved)
    assert template(first) != template(Workload("web", "shop", ("true",), labels=(("a", "b"),)))


@pytest.mark.parametrize("replicas", [1, 2, 3, 5])
def test_a_rollout_ends_with_only_new_pods_and_never_serves_with_fewer(replicas):
    wanted = workload(replicas)
    pods = [stale(f"old-{number}") for number in range(replicas)]
    for turn in range(100):
        step = next_step(wanted, pods)
        if step == RolloutStep() and all(pod.ready for pod in pods):
            break
        pods = [pod for pod in pods if pod.name not in step.end]
        pods += [fresh(f"new-{turn}-{number}", ready=False) for number in range(step.start)]
        assert len(pods) <= replicas + 1
        assert sum(pod.ready for pod in pods) >= replicas
        if not step.end:
            pods = [fresh(pod.name) if pod.fresh else pod for pod in pods]
    assert len(pods) == replicas and all(pod.fresh for pod in pods)
