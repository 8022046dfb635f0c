"""Shows the live view of a mesh that another process runs, until Ctrl-C or until the mesh ends. On a terminal the view
is redrawn in place; elsewhere one line is printed per change. The mesh is not affected."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from weft.cli.print.mesh_tables import mesh_view
from weft.cli.print.output import say
from weft.cli.print.status_changes import changes
from weft.local.client import fetch_status
from weft.local.error import LocalError
from weft.local.status import MeshStatus

REDRAW = 0.5  # seconds; the figures of the edges are not updated more often
_FOOTER = Text("\nCtrl-C ends this view; the mesh continues to run", "dim")
_FOOTER_LINES = 3  # including the line that a terminal reserves for its cursor


def watch_mesh(name: str) -> None:
    statuses = _statuses(name)
    try:
        first = next(statuses)
        if sys.stdout.isatty():
            _draw(first, statuses)
        else:
            _print(first, statuses)
        say(f"mesh {name} has ended")
    except KeyboardInterrupt:
        pass


def _statuses(name: str) -> Iterator[MeshStatus]:
    """Yield the status of the mesh repeatedly until the mesh has ended. Raises LocalError if the first query fails."""
    yield fetch_status(name)
    while True:
        time.sleep(REDRAW)
        try:
            status = fetch_status(name)
        except LocalError:
            return
        yield status


def _draw(first: MeshStatus, statuses: Iterator[MeshStatus]) -> None:
    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        status: MeshStatus | None = first
        while status is not None:
            view = mesh_view(status, height=console.height - _FOOTER_LINES)
            live.update(Group(view, _FOOTER), refresh=True)
            status = next(statuses, None)


def _print(first: MeshStatus, statuses: Iterator[MeshStatus]) -> None:
    before: MeshStatus | None = None
    status: MeshStatus | None = first
    while status is not None:
        for line in changes(before, status):
            print(line, flush=True)
        before, status = status, next(statuses, None)
