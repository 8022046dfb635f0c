"""Formats the steps of `weft demo --check` as a table. Each step is also printed as a line on standard error when it
ends; the table is for users who do not see these lines."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from weft.demo.check import DemoStep


def is_one_place(first: TextIO, second: TextIO) -> bool:
    """Return whether the streams `first` and `second` write to the same terminal, pipe or file."""
    try:
        return os.path.samestat(os.fstat(first.fileno()), os.fstat(second.fileno()))
    except OSError:
        return False


def steps_table(steps: Iterable[DemoStep]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column("STEP", no_wrap=True)
    table.add_column("SECONDS", justify="right")
    table.add_column("WHAT WAS SEEN", overflow="fold")
    for step in steps:
        mark = Text("ok", "green") if step.ok else Text("FAILED", "bold red")
        table.add_row(mark, step.what, f"{step.seconds:.1f}", Text(step.saw))
    return table
