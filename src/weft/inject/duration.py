"""Parses durations in Go's format (`1m30s`, `500ms`), which Istio's settings and annotations use."""

from __future__ import annotations

import re

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ns|us|µs|ms|s|m|h)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")


def seconds_of(text: str) -> float | None:
    """Return the duration in seconds, or None if `text` is not a duration."""
    if text == "0":
        return 0.0
    if len(text) > 64 or _WHOLE.fullmatch(text) is None:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
