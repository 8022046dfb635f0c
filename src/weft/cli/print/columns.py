"""Formats tables like istioctl's: headings in capitals, columns separated by spaces, one line per row. Plain text,
which `awk` can read and which does not need the library of the live view (rich)."""

from __future__ import annotations

from collections.abc import Sequence

GAP = 5  # spaces between columns


def lines(columns: Sequence[str], rows: Sequence[Sequence[str]], *, gap: int = GAP) -> list[str]:
    grid = [columns, *rows]
    widths = [max(len(row[position]) for row in grid) + gap for position in range(len(columns))]
    return ["".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in grid]
