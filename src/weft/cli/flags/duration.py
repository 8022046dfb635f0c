"""Durations as typed on a command line: 30s, 10m, 24h, 7d."""

from __future__ import annotations

import re
from datetime import timedelta

from weft.cli.print.output import fail

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_LONGEST_TEXT = 20


def duration_of(text: str, example: str) -> timedelta:
    """Return the duration that the value `text` of a flag states. Invalid text ends the command with a hint that
    shows `example`, a valid use of the flag."""
    try:
        return parse_duration(text)
    except ValueError as error:
        fail(str(error), f"for example: {example}", code=2)


def parse_duration(text: str) -> timedelta:
    """Return the duration that `text` states. Raises ValueError with a message for the user."""
    parts = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)", text) if len(text) <= _LONGEST_TEXT else None
    if parts is None:
        raise ValueError(f"`{text[:_LONGEST_TEXT]}` is not a duration such as 30s, 10m or 24h")
    try:
        return timedelta(seconds=float(parts[1]) * _UNITS[parts[2]])
    except OverflowError:
        raise ValueError(f"`{text}` is too long a duration") from None
