"""Formats a mesh's status as log lines: only what changed between two statuses."""

from __future__ import annotations

from collections.abc import Iterator

from weft.base.problem import Problem
from weft.cli.print.mesh_tables import is_settled
from weft.cli.print.output import from_here
from weft.local.status import MeshStatus, PodPhase, PodStatus

_MOST_LISTED = 20  # pods; of a larger mesh, progress is printed as counts
_MOST_NAMED = 5  # pods of a larger mesh with the same kind of trouble in one step; the others are counted
_STEPS = 20  # counts that are printed from the first ready pod to the last
_ON_THE_WAY = (PodPhase.STARTING, PodPhase.RUNNING, PodPhase.READY, PodPhase.COMPLETED)


def changes(before: MeshStatus | None, after: MeshStatus) -> Iterator[str]:
    pods_before = _pods(before)
    pods_after = _pods(after)
    many = len(pods_after) > _MOST_LISTED
    lines = []
    for key, pod in pods_after.items():
        old = pods_before.get(key)
        changed = old is None or old.phase is not pod.phase or old.restarts != pod.restarts
        if changed and not (many and _is_on_the_way(pod, old)):
            lines.append(_pod_line(pod, old))
        if pod.proxy_restarts > (old.proxy_restarts if old else 0):
            lines.append(f"{key}: proxy restarted ({pod.proxy_restarts})")
    lines += [f"{key}: gone" for key in pods_before if key not in pods_after]
    named = _MOST_NAMED if many or len(pods_before) > _MOST_LISTED else len(lines)
    yield from lines[:named]
    if lines[named:]:
        yield f"… and {len(lines) - named} more changes of pods: see `weft ps`"
    if many and _step(after) != (_step(before) if before else 0):
        yield settled_pods(after)
    yield from _problem_lines(before.problems if before else (), after.problems)
    known = before.notable_rejections if before else ()
    yield from (from_here(str(each)) for each in after.notable_rejections if each not in known)
    if is_settled(after) and not (before and is_settled(before)):
        which = f"all {len(pods_after)} pods are" if len(pods_after) > 1 else "the only pod is"
        yield f"{which} ready or completed"


def settled_pods(status: MeshStatus) -> str:
    settled, wanted = _counts(status)
    return f"{settled} of {wanted} pods are ready"


def _step(status: MeshStatus) -> int:
    settled, wanted = _counts(status)
    return settled * _STEPS // max(1, wanted)


def _counts(status: MeshStatus) -> tuple[int, int]:
    """Return how many pods are ready or completed, and how many there should be."""
    settled = sum(pod.phase in (PodPhase.READY, PodPhase.COMPLETED) for pod in status.pods)
    return settled, sum(max(each.replicas, len(each.pods)) for each in status.workloads)


def _is_on_the_way(pod: PodStatus, old: PodStatus | None) -> bool:
    """Return whether the pod's change is one that every pod goes through until it is ready. `old`: its status before
    the change, None if it is new."""
    restarted = pod.restarts != (old.restarts if old else 0)
    lost = old is not None and old.phase is PodPhase.READY
    return pod.phase in _ON_THE_WAY and not restarted and not lost


def _pods(status: MeshStatus | None) -> dict[str, PodStatus]:
    workloads = status.workloads if status else ()
    return {f"{pod.namespace}/{pod.name}": pod for workload in workloads for pod in workload.pods}


def _pod_line(pod: PodStatus, old: PodStatus | None) -> str:
    parts = [f"{pod.namespace}/{pod.name}: {pod.phase}"]
    if pod.phase is PodPhase.STARTING and pod.addresses:
        parts.append(f"at {pod.addresses[0]}")
    if pod.restarts > (old.restarts if old else 0):
        parts.append(f"(restart {pod.restarts})")
    if pod.message:
        parts.append(f"– {pod.message}")
    return " ".join(parts)


def _problem_lines(before: tuple[Problem, ...], after: tuple[Problem, ...]) -> Iterator[str]:
    yield from (from_here(str(problem)) for problem in after if problem not in before)
    yield from (f"solved: {problem.where}: {problem.what}" for problem in before if problem not in after)
