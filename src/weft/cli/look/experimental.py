"""`weft x`: commands whose names or output may still change, like `istioctl x`."""

from __future__ import annotations

from weft.cli.commands import by_name
from weft.cli.lazy_commands import LazyGroup, Listing

_BESIDE = ("check-inject", "describe", "proxy-status")  # also available without `x`

GROUP = LazyGroup(
    "x",
    help="Commands that may still change.",
    epilog="Example: weft x precheck",
    listings={
        "Commands": (
            Listing("authz", "look.authz_check:GROUP", "Authorization: the policies in force at a pod."),
            *(by_name()[name] for name in _BESIDE),
            Listing(
                "precheck", "install.precheck:precheck", "Check whether weft can be installed or updated on a cluster."
            ),
        )
    },
)
