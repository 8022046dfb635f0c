"""Formats a mesh's status as log lines: only what changed between two statuses."""

from __future__ import annotations

from collections.abc import Iterator

from weft.base.problem import Problem
from weft.cli.print.mesh_tables import is_settled
from weft.cli.print.output import from_here
from weft.local.status import MeshStatus, PodPhase, PodStatus


def changes(before: MeshStatus | None, after: MeshStatus) -> Iterator[str]:
    pods_before = _pods(before)
    pods_after = _pods(after)
    for key, pod in pods_after.items():
        old = pods_before.get(key)
        if old is None or old.phase is not pod.phase or old.restarts != pod.restarts:
            yield _pod_line(pod, old)
        if pod.proxy_restarts > (old.proxy_restarts if old else 0):
            yield f"{key}: proxy restarted ({pod.proxy_restarts})"
    yield from (f"{key}: gone" for key in pods_before if key not in pods_after)
    yield from _problem_lines(before.problems if before else (), after.problems)
    known = before.notable_rejections if before else ()
    yield from (from_here(str(each)) for each in after.notable_rejections if each not in known)
    if is_settled(after) and not (before and is_settled(before)):
        which = f"all {len(pods_after)} pods are" if len(pods_after) > 1 else "the only pod is"
        yield f"{which} ready or completed"


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
