"""`weft x`: commands whose names or answers may still change, as `istioctl x` has them."""

from __future__ import annotations

from weft.cli.commands import by_name
from weft.cli.lazy_commands import Command, Group

_BESIDE = ("check-inject", "describe", "proxy-status")  # what is called without `x` too

GROUP = Group(
    "Commands that may still change.",
    "Example: weft x precheck",
    (
        Command("authz", "look.authz_check:GROUP", "Authorization: the policies in force at a pod."),
        *(by_name()[name] for name in _BESIDE),
        Command(
            "precheck", "install.precheck:precheck", "Look whether weft can be installed on a cluster, or updated."
        ),
    ),
)
