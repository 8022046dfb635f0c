"""The result of a rig: a named number, the goal that it should not exceed, and the baseline from the same run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).with_name("results") / "latest.json"
KUBERNETES_RESULTS = RESULTS.with_name("kube.json")

Say = Callable[[str], None]


class Effort(msgspec.Struct, frozen=True):
    """How long the rigs run. A quick run shows that the rigs work, but its figures are imprecise."""

    quick: bool = False

    def of(self, usual: int, quick: int) -> int:
        return quick if self.quick else usual


class Figure(msgspec.Struct, frozen=True):
    name: str
    value: float
    unit: str
    goal: float | None = None  # upper limit; None: the figure has no goal
    baseline: float | None = None  # the same quantity measured without weft, in the same run

    @property
    def ok(self) -> bool:
        return self.goal is None or self.value <= self.goal


def write(figures: Iterable[Figure], path: Path) -> None:
    listed = [{**msgspec.structs.asdict(figure), "ok": figure.ok} for figure in figures]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(listed, indent=2) + "\n")


def show(figures: Iterable[Figure], console: Console) -> None:
    table = Table(title="weft, measured", title_justify="left", header_style="bold")
    table.add_column("figure")
    for column in ("value", "goal", "baseline"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("ok")
    for figure in figures:
        verdict = "" if figure.goal is None else "[green]yes[/]" if figure.ok else "[red]no[/]"
        limit = "" if figure.goal is None else f"≤ {_number(figure.goal)}"
        baseline = "" if figure.baseline is None else _number(figure.baseline)
        table.add_row(figure.name, f"{_number(figure.value)} {figure.unit}".strip(), limit, baseline, verdict)
    console.print(table)


def quantile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"
