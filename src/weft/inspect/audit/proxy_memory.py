"""Check the 20 % rule: a proxy should not need more than a fifth of its application's memory. Input: memory of pods,
measured or from limits and requests. Output: a row per workload, with the proxy's share of memory, and an estimate of
what the workload would need if one proxy served the whole node.

Rule: no invented figures. The memory of a per-node proxy is unknown before such a proxy runs, so it is taken to be that
of the largest proxy on the node, and labelled an estimate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from weft.base.problem import Problem, Severity, Where

RULE = 0.2  # highest share of a proxy, relative to its application's memory
_LISTED = 5
AMBIENT = (
    "ambient: the memory per pod if the pods of a node shared one proxy; an estimate, not measured: the memory of the "
    "largest proxy on the node, divided by the number of pods there that have a proxy"
)


class PodMemory(msgspec.Struct, frozen=True):
    """The memory of the proxy and of the application in one pod, in bytes; None if unknown. `proxy_from`,
    `application_from`: where the figure comes from (`measured`, `limit` or `request`), or why it is unknown.
    `workload`: the name of the pod's workload."""

    workload: str
    namespace: str
    node: str = ""
    proxy: int | None = None
    proxy_from: str = ""
    application: int | None = None
    application_from: str = ""


class Cost(msgspec.Struct, frozen=True):
    """The memory figures of one workload, taken from that pod of the workload in which the proxy's memory is largest
    relative to the application's. `share`: the proxy's memory divided by the application's. For `sharing` and
    `ambient`, assume one proxy per node, on the workload's node with the fewest proxies. `sharing`: the number of
    proxies that the one proxy would replace. `ambient`: the estimated memory of the one proxy, divided by `sharing`."""

    workload: str
    namespace: str
    pods: int
    proxy: int | None
    proxy_from: str
    application: int | None
    application_from: str
    share: float | None  # the proxy's memory divided by the application's; None if either is unknown
    sharing: int  # number of proxies that one proxy per node would replace, on the workload's node with the fewest
    # The workload's share of one proxy per node, in bytes, if that proxy is as large as the largest one on the node.
    ambient: int | None = None

    @property
    def is_over(self) -> bool:
        return self.share is not None and self.share > RULE


def costs(pods: Iterable[PodMemory]) -> tuple[Cost, ...]:
    by_workload: dict[tuple[str, str], list[PodMemory]] = defaultdict(list)
    on_node: dict[str, list[int]] = defaultdict(list)
    for pod in pods:
        by_workload[pod.namespace, pod.workload].append(pod)
        on_node[pod.node].append(pod.proxy or 0)
    rows = []
    for (namespace, workload), of_workload in sorted(by_workload.items()):
        # The pod with the greatest known share; any pod if no share is known.
        worst = max(of_workload, key=lambda pod: -1.0 if (share := _share(pod)) is None else share)
        beside = min((on_node[pod.node] for pod in of_workload), key=len)
        rows.append(
            Cost(
                workload,
                namespace,
                len(of_workload),
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
    """Report all workloads in `rows` whose proxy exceeds the 20 % rule, in one finding. Its severity is only INFO,
    because there is no alternative to a proxy per pod yet."""
    rows = tuple(rows)
    over = [row for row in rows if row.is_over]
    if not over:
        return ()
    listed = ", ".join(f"{row.namespace}/{row.workload}" for row in over[:_LISTED])
    more = f" and {len(over) - _LISTED} more" if len(over) > _LISTED else ""
    share = f"more than {RULE:.0%} of the application's memory"
    what = f"{len(over)} of {len(rows)} workloads have a proxy that needs {share}: {listed}{more}"
    hint = "a Sidecar with egress.hosts makes a proxy smaller; weft proxy-config clusters POD shows its clusters"
    return (Problem(Where(object="memory"), what, hint, Severity.INFO),)


def _share(pod: PodMemory) -> float | None:
    return pod.proxy / pod.application if pod.proxy is not None and pod.application else None
