"""Computes the next step from the current pods of a Workload to the wanted pods. Pure functions, called again after
each change.

A changed Workload is rolled out one pod at a time: a new pod starts first, and an old pod ends only when the new one is
ready. So there are never fewer ready pods than before. If a new pod never becomes ready, the old pods keep running.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from weft.model.workload import RestartPolicy, Workload


class Present(msgspec.Struct, frozen=True):
    """A pod that exists and is not ending. `fresh`: it was created from the current version of the Workload.
    `completed`: it is a job that has ended. `ready`: it serves calls."""

    name: str
    fresh: bool  # created from the current version of the Workload
    ready: bool
    completed: bool = False  # a job that has ended


class RolloutStep(msgspec.Struct, frozen=True):
    start: int = 0
    end: tuple[str, ...] = ()


def next_step(workload: Workload | None, pods: Sequence[Present]) -> RolloutStep:
    if workload is None:
        return RolloutStep(end=tuple(pod.name for pod in pods))
    fresh = [pod for pod in pods if pod.fresh]
    stale = [pod for pod in pods if not pod.fresh]
    surplus = tuple(pod.name for pod in fresh[workload.replicas :])
    if workload.restart is not RestartPolicy.ALWAYS:
        # Two versions of a job at the same time would do the work twice, so the old pods end before new ones start.
        missing = 0 if stale else max(0, workload.replicas - len(fresh))
        return RolloutStep(missing, (*surplus, *(pod.name for pod in stale)))
    missing = max(0, workload.replicas - len(fresh))
    if not stale:
        return RolloutStep(missing, surplus)
    room = max(0, workload.replicas + 1 - len(pods))
    return RolloutStep(min(missing, room), (*surplus, *_dispensable(workload, fresh, stale)))


def template(workload: Workload) -> Workload:
    """Return the Workload without its number of replicas and its origin in the files. If only these two change, no
    pod is replaced."""
    return msgspec.structs.replace(workload, replicas=0, origin=None)


def _dispensable(workload: Workload, fresh: Sequence[Present], stale: Sequence[Present]) -> list[str]:
    """Return the names of the pods in `stale` (created from an old version of the Workload) that may end. `fresh`: the
    pods of the current version. For each replica without a ready fresh pod, one stale pod is kept, ready stale pods
    first. Exception: while there are fewer fresh pods than replicas, all stale pods that are not ready may end, so that
    new pods can replace them."""
    serving = sum(pod.ready for pod in fresh)
    needed = max(0, workload.replicas - serving)
    by_use = sorted(stale, key=lambda pod: not pod.ready)  # ready pods first: these are kept longest
    kept, rest = by_use[:needed], by_use[needed:]
    # A pod that is not ready is replaced at once while new pods are missing.
    broken = [pod for pod in kept if not pod.ready and len(fresh) < workload.replicas]
    return [pod.name for pod in (*rest, *broken)]
