"""Amounts of a resource as Kubernetes writes them: `100m`, `128Mi`, `2`, `1e3`."""

from __future__ import annotations

import re

_QUANTITY = re.compile(
    r"[+]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})(m|u|n|[kMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?"
)


def problem_of_quantity(text: str) -> str:
    """What is wrong with it, or nothing. The API server would say it too, but about a container nobody wrote."""
    if len(text) <= 64 and _QUANTITY.fullmatch(text):
        return ""
    return f"`{text[:64]}` is not an amount"
