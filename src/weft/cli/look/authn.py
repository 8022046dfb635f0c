"""`weft authn`: commands about mutual TLS, grouped as in istioctl."""

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
