"""From the pods there are to the pods there should be, step by step: pure decisions, asked again after each change.

A changed Workload is rolled out one pod at a time: a new pod first, and only when it serves does an old one end, so
that there are never fewer ready pods than before. If the new one never becomes ready, the old ones go on.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from weft.model.workload import RestartPolicy, Workload


class Present(msgspec.Struct, frozen=True):
    """One pod that is there and not ending."""

    name: str
    fresh: bool  # made from the Workload as it is now
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
        # A job is not served from: two versions of it side by side would do the work twice.
        missing = 0 if stale else max(0, workload.replicas - len(fresh))
        return RolloutStep(missing, (*surplus, *(pod.name for pod in stale)))
    missing = max(0, workload.replicas - len(fresh))
    if not stale:
        return RolloutStep(missing, surplus)
    room = max(0, workload.replicas + 1 - len(pods))
    return RolloutStep(min(missing, room), (*surplus, *_dispensable(workload, fresh, stale)))


def template(workload: Workload) -> Workload:
    """What a pod is made from: everything but how many there are and where that stands."""
    return msgspec.structs.replace(workload, replicas=0, origin=None)


def _dispensable(workload: Workload, fresh: Sequence[Present], stale: Sequence[Present]) -> list[str]:
    """Old pods that are not needed any more: one for each new one that serves; broken ones serve nobody anyway."""
    serving = sum(pod.ready for pod in fresh)
    needed = max(0, workload.replicas - serving)
    by_use = sorted(stale, key=lambda pod: not pod.ready)  # those that serve are kept longest
    kept, rest = by_use[:needed], by_use[needed:]
    # One that is broken gives its place to a new one at once, if there is no room beside it.
    broken = [pod for pod in kept if not pod.ready and len(fresh) < workload.replicas]
    return [pod.name for pod in (*rest, *broken)]
