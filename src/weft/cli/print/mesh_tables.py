"""Renders the status of a mesh as tables: workloads, traffic (edges) and problems. An edge is the traffic from one
workload to one destination. Pure functions from a status to objects that rich prints. `weft up` redraws them; `weft ps`
and `weft status` print them once. If the terminal is too narrow or too low, the least important columns and rows are
left out first (`weft.cli.print.fit_terminal`)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from weft.base.problem import Problem, Severity
from weft.cli.print.fit_terminal import ColumnsThatFit, FirstThatFits, Fitted, shortened
from weft.cli.print.output import from_here
from weft.local.status import EdgeStatus, MeshStatus, PodPhase, PodStatus, PodSync, WorkloadStatus

# A workload is shown with the worst phase of its pods.
WORST_FIRST = (
    PodPhase.FAILED,
    PodPhase.BACK_OFF,
    PodPhase.STARTING,
    PodPhase.RUNNING,
    PodPhase.ENDING,
    PodPhase.READY,
    PodPhase.COMPLETED,
)
SYNC_WORST_FIRST = (PodSync.STALE, PodSync.NOT_SENT, PodSync.SYNCED, PodSync.NONE)
_PHASE_STYLE = {
    PodPhase.FAILED: "bold red",
    PodPhase.BACK_OFF: "red",
    PodPhase.STARTING: "yellow",
    PodPhase.RUNNING: "yellow",
    PodPhase.ENDING: "yellow",
    PodPhase.READY: "green",
    PodPhase.COMPLETED: "cyan",
}
_SYNC_STYLE = {PodSync.STALE: "yellow", PodSync.NOT_SENT: "yellow", PodSync.SYNCED: "green", PodSync.NONE: "dim"}
PROBLEMS_SHOWN = 8
CLUSTER_SUFFIX = ".svc.cluster.local"


def mesh_view(status: MeshStatus, *, problems: int | None = PROBLEMS_SHOWN, height: int | None = None) -> Fitted:
    """Return the whole view of a mesh: workloads, traffic and problems. At most `problems` problems are shown; None
    shows all. The view has at most `height` lines; None: no limit."""

    def draw(rows: Sequence[int]) -> Group:
        workloads, edges, most = rows
        parts: list[RenderableType] = [_headline(status), Text(), workload_table(_worst(status.workloads, workloads))]
        parts += _and_more(len(status.workloads) - workloads)
        if status.edges:
            parts += [Text(), edge_table(_busiest(status.edges, edges)), *_and_more(len(status.edges) - edges)]
        if status.problems:
            parts += [Text(), problem_list(status.problems, most=most)]
        rejected = status.notable_rejections if problems is None else status.notable_rejections[:PROBLEMS_SHOWN]
        parts += [Text(from_here(str(each)), "yellow") for each in rejected]
        if status.problems and not status.is_checked:
            parts.append(Text("findings about several objects are being computed again", "dim"))
        return Group(*parts)

    most_problems = len(status.problems) if problems is None else min(problems, len(status.problems))
    return Fitted(draw, most=(len(status.workloads), len(status.edges), most_problems), least=(3, 3, 1), height=height)


def workload_table(workloads: Sequence[WorkloadStatus]) -> ColumnsThatFit:
    names = ("WORKLOAD", "READY", "PHASE", "SYNC", "RESTARTS", "MESSAGE")
    rows: list[Sequence[str | Text]] = []
    several = _several_namespaces(workload.namespace for workload in workloads)
    for workload in workloads:
        phase = worst_phase(workload)
        sync = min((pod.sync for pod in workload.pods), key=SYNC_WORST_FIRST.index, default=PodSync.NONE)
        row: list[str | Text] = [
            f"{workload.namespace}/{workload.name}" if several else workload.name,
            "–" if phase is PodPhase.COMPLETED else f"{workload.ready}/{workload.replicas}",
            Text(phase, _PHASE_STYLE[phase]) if phase else Text("–", "dim"),
            Text(sync, _SYNC_STYLE[sync]),
            _restarts(workload.pods),
            _message(workload.pods) or published(workload),
        ]
        rows.append(row)
    return ColumnsThatFit(names, rows, _rows_table, ("RESTARTS", "SYNC"))


def published(workload: WorkloadStatus) -> str:
    """Return a text with the addresses of this machine on which a gateway is published; "" if there are none."""
    return f"published on {', '.join(workload.published)}" if workload.published else ""


def pod_table(meshes: Sequence[MeshStatus], *, wide: bool, now: float) -> RenderableType:
    """Return a table of all pods. With `wide`, it has further columns; if they do not fit side by side, each pod
    becomes a block of lines. Without `wide`, a narrow terminal first loses the columns PID, RESTARTS and ADDRESS."""
    names = ["MESH"] if len(meshes) > 1 else []
    names += ["POD", "PHASE", "SYNC", "RESTARTS", "AGE", "PID", "ADDRESS"]
    if wide:
        names += ["IPV6", "PROXY MEMORY", "EXIT", "IDENTITY"]
    names.append("MESSAGE")
    rows = []
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
                pod.identity.identity if pod.identity else "–",
            ]
        rows.append([*row, _one_line(pod.message)])
    return ColumnsThatFit(names, rows, _rows_table, () if wide else ("PID", "RESTARTS", "ADDRESS"))


def _rows_table(names: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> Table:
    table = _table(*names, numbers={"RESTARTS", "AGE", "PID", "PROXY MEMORY", "EXIT"})
    for row in rows:
        _add(table, *row)
    return table


def edge_table(edges: Sequence[EdgeStatus]) -> FirstThatFits:
    """Return a table of the traffic, with a row for each edge. On a narrow terminal, the columns TOTAL and then P50 are
    left out, and then names are shortened."""
    longest = max((len(name) for edge in edges for name in _ends(edge, several=True)), default=0)
    columns = _EDGE_COLUMNS if any(edge.subset for edge in edges) else _without(_EDGE_COLUMNS, "SUBSET")
    tightest = _without(columns, "TOTAL", "P50")
    return FirstThatFits(
        partial(_edge_table, edges, columns),
        partial(_edge_table, edges, _without(columns, "TOTAL")),
        partial(_edge_table, edges, tightest),
        *(partial(_edge_table, edges, tightest, longest=length) for length in range(longest - 1, 7, -1)),
    )


_EDGE_COLUMNS = ("FROM", "TO", "SUBSET", "REQ/S", "SUCCESS", "P50", "P99", "TOTAL")


def _edge_table(edges: Sequence[EdgeStatus], columns: Sequence[str], *, longest: int | None = None) -> Table:
    table = _table(*columns, numbers={"REQ/S", "SUCCESS", "P50", "P99", "TOTAL"})
    several = _several_namespaces(edge.source.partition("/")[0] for edge in edges)
    for edge in sorted(edges, key=_edge_order):
        source, destination = (shortened(name, longest) for name in _ends(edge, several=several))
        connections = "1 connection" if edge.connections == 1 else f"{edge.connections} connections"
        calls = "" if is_tcp(edge) else f"{edge.requests_per_second:.1f}"
        if is_tcp(edge) and "TOTAL" not in columns:
            calls = f"{edge.connections} conn."
        cells: dict[str, str | Text] = {
            "FROM": source,
            "TO": destination,
            "SUBSET": shortened(edge.subset, longest),
            "REQ/S": calls,
            "SUCCESS": _success(edge.success, edge.denied or 0.0),
            "P50": _milliseconds(edge.p50_ms),
            "P99": _milliseconds(edge.p99_ms),
            "TOTAL": connections if is_tcp(edge) else str(edge.requests),
        }
        _add(table, *(cells[column] for column in columns))
    return table


def problem_list(problems: Sequence[Problem], *, most: int | None = None) -> Group:
    shown = problems[:most]
    lines: list[RenderableType] = [problem_text(problem) for problem in shown]
    if left := len(problems) - len(shown):
        lines.append(Text(f"and {left} more: weft status", "dim"))
    return Group(*lines)


def problem_text(problem: Problem) -> Text:
    style = "red" if problem.severity is Severity.ERROR else "yellow"
    place = from_here(f"{problem.where}: ") if str(problem.where) else ""
    text = Text.assemble((place, "bold"), (f"{problem.level}: ", style), _one_line(problem.what))
    return text.append(f" (hint: {_one_line(problem.hint)})", "dim") if problem.hint else text


def worst_phase(workload: WorkloadStatus) -> PodPhase | None:
    return min((pod.phase for pod in workload.pods), key=WORST_FIRST.index, default=None)


def is_settled(status: MeshStatus) -> bool:
    """Return whether there are pods and every pod is ready or completed."""
    return bool(status.pods) and all(pod.phase in (PodPhase.READY, PodPhase.COMPLETED) for pod in status.pods)


def is_tcp(edge: EdgeStatus) -> bool:
    return edge.connections > 0 and edge.requests == 0


def short_host(host: str, namespace: str) -> str:
    """Return the short form of a host: `catalog` for catalog.shop.svc.cluster.local if `namespace` is shop, else
    `catalog.shop`."""
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
    pods = status.pods
    settled = sum(pod.phase in (PodPhase.READY, PodPhase.COMPLETED) for pod in pods)
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
    """Add a row. Strings are added as plain text, because rich would take `[…]` in a program's message for markup."""
    table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in cells))


def _without(columns: Sequence[str], *left_out: str) -> list[str]:
    return [column for column in columns if column not in left_out]


def _ends(edge: EdgeStatus, *, several: bool) -> tuple[str, str]:
    namespace, _, workload = edge.source.partition("/")
    return edge.source if several else workload, f"{short_host(edge.destination, namespace)}:{edge.port}"


def _edge_order(edge: EdgeStatus) -> tuple[str, str, int, str]:
    return edge.source, edge.destination, edge.port, edge.subset


def _busiest(edges: Sequence[EdgeStatus], most: int) -> Sequence[EdgeStatus]:
    return sorted(edges, key=lambda edge: (-edge.requests_per_second, _edge_order(edge)))[:most]


def _worst(workloads: Sequence[WorkloadStatus], most: int) -> Sequence[WorkloadStatus]:
    """Return at most `most` of `workloads`, in their original order. If there are more, those in the worst phases are
    chosen."""

    def rank(workload: WorkloadStatus) -> int:
        phase = worst_phase(workload)
        return len(WORST_FIRST) if phase is None else WORST_FIRST.index(phase)

    kept = sorted(range(len(workloads)), key=lambda place: rank(workloads[place]))[:most]
    return [workloads[place] for place in sorted(kept)]


def _and_more(count: int) -> list[RenderableType]:
    return [Text(f"… {count} more", "dim")] if count > 0 else []


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


def _success(share: float | None, denied: float) -> Text:
    if share is None:
        return Text("–", "dim")
    if denied and share > 0.999:
        return Text("denied" if denied > 0.999 else f"{100 * denied:.0f} % denied", "yellow")
    words = f"{100 * share:.0f} %" if share in (0.0, 1.0) else f"{100 * share:.1f} %"
    return Text(words, "green" if share > 0.999 else "yellow" if share > 0.95 else "red")


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"
