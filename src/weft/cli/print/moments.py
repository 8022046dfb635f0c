"""Formats the moments of a mesh's history, each on one line with the objects that changed."""

from __future__ import annotations

from typing import Any

_MOST_SHOWN = 3  # objects named on the line of a moment


def told_moment(moment: dict[str, Any]) -> tuple[str, str, str, str]:
    return f"@{moment['number']}", told_time(moment["at"]), moment["digest"] or "-", _changes(moment["changes"])


def _changes(changes: list[dict[str, Any]]) -> str:
    shown = [f"{name_of(each['object'])} {each['what']}{place_of(each['where'])}" for each in changes[:_MOST_SHOWN]]
    rest = len(changes) - len(shown)
    return ", ".join(shown) + (f", and {rest} more" if rest else "")


def name_of(key: dict[str, str]) -> str:
    return f"{key['kind']} {key['namespace']}/{key['name']}" if key["namespace"] else f"{key['kind']} {key['name']}"


def place_of(where: dict[str, Any]) -> str:
    return f" ({where['file']}:{where['line']})" if where.get("file") else ""


def told_time(at: float) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
