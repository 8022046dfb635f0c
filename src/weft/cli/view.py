"""A mesh's status as tables for a person: workloads, edges, problems.
Pure: a status comes in, what rich can print leaves. `weft up` redraws it, `weft ps` and `weft status` print it once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from weft.base.problem import Problem, Severity
from weft.local.status import EdgeStatus, MeshStatus, Phase, PodStatus, Sync, WorkloadStatus

# A workload is as well as its worst pod.
WORST_FIRST = (
    Phase.FAILED,
    Phase.BACK_OFF,
    Phase.STARTING,
    Phase.RUNNING,
    Phase.ENDING,
    Phase.READY,
    Phase.COMPLETED,
)
SYNC_WORST_FIRST = (Sync.STALE, Sync.NOT_SENT, Sync.SYNCED, Sync.NONE)
_PHASE_STYLE = {
    Phase.FAILED: "bold red",
    Phase.BACK_OFF: "red",
    Phase.STARTING: "yellow",
    Phase.RUNNING: "yellow",
    Phase.ENDING: "yellow",
    Phase.READY: "green",
    Phase.COMPLETED: "cyan",
}
_SYNC_STYLE = {Sync.STALE: "yellow", Sync.NOT_SENT: "yellow", Sync.SYNCED: "green", Sync.NONE: "dim"}
PROBLEMS_SHOWN = 8
CLUSTER_SUFFIX = ".svc.cluster.local"


def mesh_view(status: MeshStatus, *, problems: int | None = PROBLEMS_SHOWN) -> Group:
    """All of it; of the problems only so many, None for all."""
    parts: list[RenderableType] = [_headline(status), Text(), workload_table(status.workloads)]
    if status.edges:
        parts += [Text(), edge_table(status.edges)]
    if status.problems:
        parts += [Text(), problem_list(status.problems, most=problems)]
    return Group(*parts)


def workload_table(workloads: Sequence[WorkloadStatus]) -> Table:
    table = _table("WORKLOAD", "READY", "PHASE", "SYNC", "RESTARTS", "MESSAGE", numbers={"RESTARTS"})
    several = _several_namespaces(workload.namespace for workload in workloads)
    for workload in workloads:
        phase = worst_phase(workload)
        sync = min((pod.sync for pod in workload.pods), key=SYNC_WORST_FIRST.index, default=Sync.NONE)
        _add(
            table,
            f"{workload.namespace}/{workload.name}" if several else workload.name,
            "–" if phase is Phase.COMPLETED else f"{workload.ready}/{workload.replicas}",
            Text(phase, _PHASE_STYLE[phase]) if phase else Text("–", "dim"),
            Text(sync, _SYNC_STYLE[sync]),
            _restarts(workload.pods),
            _message(workload.pods),
        )
    return table


def pod_table(meshes: Sequence[MeshStatus], *, wide: bool, now: float) -> Table:
    names = ["MESH"] if len(meshes) > 1 else []
    names += ["POD", "PHASE", "SYNC", "RESTARTS", "AGE", "PID", "ADDRESS"]
    if wide:
        names += ["IPV6", "PROXY MEMORY", "EXIT"]
    table = _table(*names, "MESSAGE", numbers={"RESTARTS", "AGE", "PID", "PROXY MEMORY", "EXIT"})
    several = _several_namespaces(workload.namespace for mesh in meshes for workload in mesh.workloads)
    pods = [(mesh.name, pod) for mesh in meshes for workload in mesh.workloads for pod in workload.pods]
    for mesh_name, pod in pods:
        four = [address for address in pod.addresses if ":" not in address]
        six = [address for address in pod.addresses if ":" in address]
        row: list[str | Text] = [mesh_name] if len(meshes) > 1 else []
        row += [
            f"{pod.namespace}/{pod.name}" if several else pod.name,
            Text(pod.phase, _PHASE_STYLE[pod.phase]),
            Text(pod.sync, _SYNC_STYLE[pod.sync]),
            _restarts((pod,)),
            age(now - pod.since) if pod.since else "–",
            str(pod.pid or "–"),
            ", ".join(four) or "–",
        ]
        if wide:
            row += [
                ", ".join(six) or "–",
                f"{pod.proxy_memory / 1e6:.1f} MB" if pod.proxy_memory else "–",
                "–" if pod.exit_code is None else str(pod.exit_code),
            ]
        _add(table, *row, _one_line(pod.message))
    return table


def edge_table(edges: Sequence[EdgeStatus]) -> Table:
    table = _table("FROM", "TO", "SUBSET", "REQUESTS/S", "SUCCESS", "P50", "P99", "TOTAL", numbers=_EDGE_NUMBERS)
    several = _several_namespaces(edge.source.partition("/")[0] for edge in edges)
    for edge in sorted(edges, key=lambda edge: (edge.source, edge.destination, edge.port, edge.subset)):
        namespace, _, workload = edge.source.partition("/")
        total = f"{edge.connections} connections" if is_tcp(edge) else str(edge.requests)
        _add(
            table,
            edge.source if several else workload,
            f"{short_host(edge.destination, namespace)}:{edge.port}",
            edge.subset,
            "" if is_tcp(edge) else f"{edge.requests_per_second:.1f}",
            _success(edge.success),
            _milliseconds(edge.p50_ms),
            _milliseconds(edge.p99_ms),
            total,
        )
    return table


_EDGE_NUMBERS = {"REQUESTS/S", "SUCCESS", "P50", "P99", "TOTAL"}


def problem_list(problems: Sequence[Problem], *, most: int | None = None) -> Group:
    shown = problems[:most]
    lines: list[RenderableType] = [problem_text(problem) for problem in shown]
    if left := len(problems) - len(shown):
        lines.append(Text(f"and {left} more: weft status", "dim"))
    return Group(*lines)


def problem_text(problem: Problem) -> Text:
    style = "red" if problem.severity is Severity.ERROR else "yellow"
    place = f"{problem.where}: " if str(problem.where) else ""
    text = Text.assemble((place, "bold"), (f"{problem.severity}: ", style), _one_line(problem.what))
    return text.append(f" (hint: {_one_line(problem.hint)})", "dim") if problem.hint else text


def worst_phase(workload: WorkloadStatus) -> Phase | None:
    return min((pod.phase for pod in workload.pods), key=WORST_FIRST.index, default=None)


def is_settled(status: MeshStatus) -> bool:
    """Every pod has come to where it should be."""
    pods = [pod for workload in status.workloads for pod in workload.pods]
    return bool(pods) and all(pod.phase in (Phase.READY, Phase.COMPLETED) for pod in pods)


def is_tcp(edge: EdgeStatus) -> bool:
    return edge.connections > 0 and edge.requests == 0


def short_host(host: str, namespace: str) -> str:
    """`catalog` for catalog.shop.svc.cluster.local, seen from shop; `catalog.shop` seen from elsewhere."""
    if not host.endswith(CLUSTER_SUFFIX):
        return host
    return host.removesuffix(CLUSTER_SUFFIX).removesuffix(f".{namespace}")


def age(seconds: float) -> str:
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m"
    return f"{whole // 3600}h" if whole < 172800 else f"{whole // 86400}d"


def _headline(status: MeshStatus) -> Text:
    pods = [pod for workload in status.workloads for pod in workload.pods]
    settled = sum(pod.phase in (Phase.READY, Phase.COMPLETED) for pod in pods)
    running = age(time.time() - status.started) if status.started else "–"
    return Text.assemble(
        ("weft ", "bold"),
        (status.name, "bold cyan"),
        f"  {status.directory}  up {running}  {settled}/{len(pods)} pods settled  push {status.push}",
    )


def _table(*names: str, numbers: set[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in names:
        last = name == "MESSAGE"
        justify = "right" if name in numbers else "left"
        table.add_column(name, justify=justify, overflow="fold" if last else "ellipsis", no_wrap=not last)  # type: ignore[arg-type]
    return table


def _add(table: Table, *cells: str | Text) -> None:
    """Plain strings stay plain: rich would read `[…]` in a program's words as markup."""
    table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in cells))


def _several_namespaces(names: Iterable[str]) -> bool:
    return len(set(names)) > 1


def _restarts(pods: Sequence[PodStatus]) -> Text:
    commands, proxies = sum(pod.restarts for pod in pods), sum(pod.proxy_restarts for pod in pods)
    words = f"{commands} (+{proxies} proxy)" if proxies else str(commands)
    return Text(words, "red" if commands or proxies else "")


def _message(pods: Sequence[PodStatus]) -> str:
    messages = dict.fromkeys(pod.message for pod in sorted(pods, key=lambda pod: WORST_FIRST.index(pod.phase)))
    return "; ".join(_one_line(message) for message in messages if message)


def _one_line(words: str) -> str:
    return " ".join(words.split())


def _success(share: float | None) -> Text:
    if share is None:
        return Text("–", "dim")
    words = f"{100 * share:.0f} %" if share in (0.0, 1.0) else f"{100 * share:.1f} %"
    return Text(words, "green" if share > 0.999 else "yellow" if share > 0.95 else "red")


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"
