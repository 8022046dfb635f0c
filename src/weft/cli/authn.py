"""`weft authn`: questions about who proves who he is, as istioctl's users know the group."""

from __future__ import annotations

import typer

from weft.cli import tls_check

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Mutual TLS: whether callers and servers agree.",
    epilog="Example: weft authn tls-check payments.shop",
)
app.command("tls-check")(tls_check.tls_check)


@app.callback()
def group() -> None:
    """A group even while it has one command."""
