"""`weft authn`: questions about who proves who he is, as istioctl's users know the group."""

from __future__ import annotations

from weft.cli.lazy_commands import Command, Group

GROUP = Group(
    "Mutual TLS: whether callers and servers agree.",
    "Example: weft authn tls-check payments.shop",
    (Command("tls-check", "look.tls_check:tls_check", "Show whether callers and servers agree on TLS."),),
)
