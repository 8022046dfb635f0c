"""Fits output to a terminal: the most detailed of several forms that fits its width, and as many rows as fit its
height. The width is known only while rich prints, so the classes here are objects that rich renders when it prints
them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text


class FirstThatFits:
    """Renders the first of several forms that fits the terminal's width; the last form if none fits. The forms are
    ordered from the most detailed to the narrowest."""

    def __init__(self, *forms: Callable[[], RenderableType]) -> None:
        self._forms = forms

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # Measure each form with unlimited width: with the real width, rich would shrink a table to fit and hide that it
        # is too wide.
        endless = options.update(width=1_000_000)
        form: RenderableType = ""
        for make in self._forms:
            form = make()
            if Measurement.get(console, endless, form).maximum <= options.max_width:
                break
        yield form


class ColumnsThatFit:
    """Renders a table. If the terminal is too narrow for all columns, some are left out, so that the values of the
    others are not cut. `names` and `rows`: the whole table; only its last column wraps. `spare`: the columns that may
    be left out, in this order. `build`: makes a table of names and rows. If the columns that must stay do not fit
    either, each row becomes a block of lines (`stacked`)."""

    def __init__(
        self,
        names: Sequence[str],
        rows: Sequence[Sequence[str | Text]],
        build: Callable[[Sequence[str], Sequence[Sequence[str | Text]]], Table],
        spare: Sequence[str],
    ) -> None:
        self._names, self._rows, self._build, self._spare = names, rows, build, spare

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names = list(self._names)
        for left_out in (None, *self._spare):
            names = [name for name in names if name != left_out]
            places = [self._names.index(name) for name in names]
            rows = [[row[place] for place in places] for row in self._rows]
            if _needed(names, rows) <= options.max_width:
                yield self._build(names, rows)
                return
        yield stacked(self._names, self._rows)


_GAP = 2  # spaces between two columns
_LAST_COLUMN = 24  # the last column may wrap, but is at least this wide if it has longer values


def _needed(names: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> int:
    """Return the width that a table with these column names and rows needs, if only its last column wraps."""
    widths = [max(cell_len(str(cell)) for cell in column) for column in zip(names, *rows, strict=True)]
    return sum(width + _GAP for width in widths[:-1]) + min(widths[-1], _LAST_COLUMN)


class Fitted:
    """Renders a view of several parts within `height` lines (None: no limit). `draw` returns the view for a given
    number of rows of each part. `most` and `least` are the largest and smallest number of rows of each part."""

    def __init__(
        self,
        draw: Callable[[Sequence[int]], RenderableType],
        *,
        most: Sequence[int],
        least: Sequence[int],
        height: int | None,
    ) -> None:
        self._draw, self._most, self._least, self._height = draw, most, least, height

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = list(self._most)
        drawn = self._draw(rows)
        if self._height is not None:
            while (over := len(console.render_lines(drawn, options, pad=False)) - self._height) > 0:
                spare = [count - least for count, least in zip(rows, self._least, strict=True)]
                part = max(range(len(rows)), key=spare.__getitem__)
                if spare[part] <= 0:
                    break
                # Cut one row more if this part was complete so far: the line that reports the cut needs a row, too.
                first = rows[part] == self._most[part]
                rows[part] -= min(spare[part], over + 1 if first else over)
                drawn = self._draw(rows)
        yield drawn


def stacked(names: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> Group:
    """Return a table's rows as blocks of lines, `NAME value`, for terminals too narrow for its columns. The first value
    of a row is the heading of its block; empty values are left out."""
    blocks: list[RenderableType] = []
    for heading, *values in rows:
        block = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        block.add_column(no_wrap=True, style="dim")
        block.add_column(overflow="fold")
        for name, value in zip(names[1:], values, strict=True):
            if str(value):
                block.add_row(f"  {name}", value if isinstance(value, Text) else Text(value))
        blocks += [*([Text()] if blocks else []), Text(str(heading), "bold"), block]
    return Group(*blocks)


def shortened(name: str, longest: int | None) -> str:
    """Return the name, cut in the middle to `longest` letters, because names differ at their ends (pay-v1, pay-v2)."""
    if longest is None or len(name) <= longest:
        return name
    tail = longest // 2
    return f"{name[: longest - tail - 1]}…{name[-tail:]}"
