"""`weft x`: commands whose names or answers may still change, as `istioctl x` has them."""

from __future__ import annotations

import typer

from weft.cli import describe, precheck, proxy_status

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Commands that may still change.",
    epilog="Example: weft x precheck",
)
app.command("describe")(describe.describe)
app.command("precheck")(precheck.precheck)
app.command("proxy-status")(proxy_status.proxy_status)


@app.callback()
def group() -> None:
    """A group even while it has one command."""
