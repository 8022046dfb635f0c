"""Parses a label selector in the syntax of kubectl and istioctl (`-l app=web,version!=v2`) into requirements on labels.
An invalid selector ends the command with an example."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weft.cli.print.output import fail

if TYPE_CHECKING:
    from weft.inject.selector import SelectorRequirement

_LISTED = re.compile(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)")
_EQUAL = re.compile(r"([^\s=!]+)\s*(!=|==|=)\s*([^\s=!]*)")
_THERE = re.compile(r"(!?)\s*([^\s=!]+)")
_BETWEEN = re.compile(r",(?![^()]*\))")  # a comma outside the parentheses of a list of values


def requirements(text: str) -> tuple[SelectorRequirement, ...]:
    return tuple(_requirement(part.strip(), text) for part in _BETWEEN.split(text))


def _requirement(part: str, text: str) -> SelectorRequirement:
    from weft.inject.selector import SelectorRequirement

    if listed := _LISTED.fullmatch(part):
        values = tuple(value.strip() for value in listed[3].split(","))
        return SelectorRequirement(listed[1], "In" if listed[2] == "in" else "NotIn", values)
    if equal := _EQUAL.fullmatch(part):
        return SelectorRequirement(equal[1], "NotIn" if equal[2] == "!=" else "In", (equal[3],))
    there = _THERE.fullmatch(part)
    if there is None:
        fail(f"`{text}` is not a label selector", "for example: -l app=web,version!=v2", code=2)
    return SelectorRequirement(there[2], "DoesNotExist" if there[1] else "Exists")
