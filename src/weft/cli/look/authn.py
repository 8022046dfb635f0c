"""`weft authn`: questions about who proves who he is, as istioctl's users know the group."""

from __future__ import annotations

from weft.cli.lazy_commands import LazyGroup, Listing

GROUP = LazyGroup(
    "authn",
    help="Mutual TLS: whether callers and servers agree.",
    epilog="Example: weft authn tls-check payments.shop",
    listings={
        "Commands": (
            Listing("tls-check", "look.tls_check:tls_check", "Show whether callers and servers agree on TLS."),
        )
    },
)
