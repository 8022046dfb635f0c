"""Parses Kubernetes resource quantities: `100m`, `128Mi`, `2`, `1e3`."""

from __future__ import annotations

import re
from decimal import Decimal

_QUANTITY = re.compile(
    r"\+?([0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(m|u|n|[kMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?"
)
_POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def problem_of_quantity(text: str) -> str:
    """Return what is wrong with a quantity, or an empty string. The API server checks it too, but its message would
    name an injected container that the pod's author did not write."""
    return "" if amount(text) is not None else f"`{text[:64]}` is not an amount"


def amount(text: str) -> Decimal | None:
    """Return the quantity as a number, or None if `text` is not a quantity."""
    match = _QUANTITY.fullmatch(text) if len(text) <= 64 else None
    if match is None:
        return None
    number, unit = Decimal(match[1]), match[2] or ""
    if unit.endswith("i"):
        return number * Decimal(1024) ** ("KMGTPE".index(unit[0]) + 1)
    power = int(unit[1:]) if unit[:1] in ("e", "E") and len(unit) > 1 else _POWERS[unit]
    return number * Decimal(10) ** Decimal(power)
