"""`weft x`: commands whose names or answers may still change, as `istioctl x` has them."""

from __future__ import annotations

from weft.cli.command import Command, Group
from weft.cli.commands import by_name

_BESIDE = ("check-inject", "describe", "proxy-status")  # what is called without `x` too

GROUP = Group(
    "Commands that may still change.",
    "Example: weft x precheck",
    (
        Command("authz", "authz_check:GROUP", "Authorization: the policies in force at a pod."),
        *(by_name()[name] for name in _BESIDE),
        Command("precheck", "precheck:precheck", "Look whether weft can be installed on a cluster, or updated."),
    ),
)
