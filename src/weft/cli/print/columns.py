"""Tables as istioctl's users know them: headings in capitals, columns apart by spaces, a row is a line. Plain text, so
that it needs none of what draws the live view, and `awk` can read it."""

from __future__ import annotations

from collections.abc import Sequence

GAP = 5  # spaces between columns


def lines(columns: Sequence[str], rows: Sequence[Sequence[str]], *, gap: int = GAP) -> list[str]:
    grid = [columns, *rows]
    widths = [max(len(row[position]) for row in grid) + gap for position in range(len(columns))]
    return ["".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in grid]
