"""The 20 % rule: a proxy should not need more than a fifth of what its application may have. Bytes of pods come in, as
they were measured or are written, and a row for each workload leaves, with its part of one proxy for the whole node.

Rule: no figure that nobody measured. What a node's proxy needs is not known before there is one: it is taken to be as
large as the largest of its node, and said to be an estimate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from weft.base.problem import Problem, Severity, Where

RULE = 0.2  # of the application's memory
_LISTED = 5
AMBIENT = (
    "ambient instead: one proxy for each node, whose memory its pods share; an estimate, not measured: one as large "
    "as the largest of that node, divided by the pods there that have one"
)


class PodMemory(msgspec.Struct, frozen=True):
    """Bytes; None where nobody knows. `…_from`: measured, limit, request, or why it is not known."""

    workload: str
    namespace: str
    node: str = ""
    proxy: int | None = None
    proxy_from: str = ""
    application: int | None = None
    application_from: str = ""


class Cost(msgspec.Struct, frozen=True):
    """One workload, by the pod in which the proxy's share is greatest."""

    workload: str
    namespace: str
    pods: int
    proxy: int | None
    proxy_from: str
    application: int | None
    application_from: str
    share: float | None  # of the proxy's memory in the application's; None if one is not known
    sharing: int  # proxies on the node with the fewest of them, that one for the node would stand for
    ambient: int | None = None  # its part of that one, if it were as large as the largest of them

    @property
    def is_over(self) -> bool:
        return self.share is not None and self.share > RULE


def costs(pods: Iterable[PodMemory]) -> tuple[Cost, ...]:
    found: dict[tuple[str, str], list[PodMemory]] = defaultdict(list)
    on_node: dict[str, list[int]] = defaultdict(list)
    for pod in pods:
        found[pod.namespace, pod.workload].append(pod)
        on_node[pod.node].append(pod.proxy or 0)
    rows = []
    for (namespace, workload), held in sorted(found.items()):
        # The worst that is known; else any.
        worst = max(held, key=lambda pod: -1.0 if (share := _share(pod)) is None else share)
        beside = min((on_node[pod.node] for pod in held), key=len)
        rows.append(
            Cost(
                workload,
                namespace,
                len(held),
                worst.proxy,
                worst.proxy_from,
                worst.application,
                worst.application_from,
                _share(worst),
                len(beside),
                round(max(beside) / len(beside)) or None,
            )
        )
    return tuple(rows)


def findings(rows: Iterable[Cost]) -> tuple[Problem, ...]:
    """Worth knowing, not more: there is nothing else to run yet."""
    rows = tuple(rows)
    over = [row for row in rows if row.is_over]
    if not over:
        return ()
    listed = ", ".join(f"{row.namespace}/{row.workload}" for row in over[:_LISTED])
    more = f" and {len(over) - _LISTED} more" if len(over) > _LISTED else ""
    what = f"of {len(rows)} workloads, {len(over)} have a proxy that takes more than {RULE:.0%}: {listed}{more}"
    hint = "a Sidecar with egress.hosts makes a proxy smaller; weft proxy-config clusters POD shows what it knows"
    return (Problem(Where(object="memory"), what, hint, Severity.INFO),)


def _share(pod: PodMemory) -> float | None:
    return pod.proxy / pod.application if pod.proxy is not None and pod.application else None
