"""`weft authn tls-check`: shows what callers of a service send, what its servers accept, and whether the two agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit

from weft.cli.flags import completions, shared
from weft.cli.print.output import fail, is_data, print_data, say

COLUMNS = ("HOST:PORT", "STATUS", "SERVER", "CLIENT", "AUTHN POLICY", "DESTINATION RULE")


@click.command()
@click.argument(
    "host",
    metavar="HOST[:PORT]",
    help="A service: NAME, NAME.NAMESPACE, or its whole host.",
    shell_complete=completions.services,
)
@click.option(
    "--from",
    "caller",
    metavar="POD",
    default="",
    help="The caller; by default every workload with a proxy.",
    shell_complete=completions.pods,
)
@shared.namespace
@shared.table_or_data
@shared.which_mesh
@shared.system
def tls_check(
    host: str,
    caller: str,
    namespace: str,
    output: str,
    mesh: str | None,
    kubernetes: bool,
    kubeconfig: Path | None,
    context: str | None,
    system: str,
) -> None:
    """Show whether callers and servers agree on TLS. CLIENT is what callers send: the mode of the DestinationRule, or
    auto, which sends each server what it accepts. SERVER is the mode of the PeerAuthentication. Callers or pods with
    different modes have separate lines.

    \b
    Exit codes: 0 no conflict, 1 a conflict.

    \b
    Example: weft authn tls-check payments.shop
             weft authn tls-check payments.shop:80 --from orders-0.shop
    """
    from weft.cli.print.columns import lines
    from weft.cli.reach.connect import answered

    name, port = _split(host)
    question = {"host": name, "port": port, "caller": caller, "namespace": namespace}
    rows = answered(
        "tls-check", question, mesh=mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, system=system
    )
    if is_data(output):
        print_data(rows, output)
    else:
        for line in lines(COLUMNS, [_cells(row) for row in rows]):
            click.echo(line)
        for row in rows:
            if row["why"]:
                say(_explanation(row))
    if any(row["status"] == "CONFLICT" for row in rows):
        raise Exit(1)


def _split(host: str) -> tuple[str, int]:
    name, colon, port = host.rpartition(":")
    if not colon:
        return host, 0
    if not port.isdecimal() or not name:
        fail(f"`{host}` is not HOST:PORT", "for example: weft authn tls-check payments.shop:80", code=2)
    return name, int(port)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    subset = f" ({row['subset']})" if row["subset"] else ""
    place = f"{row['host']}:{row['port']}{subset}"
    return (place, row["status"], row["server"], row["client"], _object(row["policy"]), _object(row["rule"]))


def _object(where: dict[str, Any] | None) -> str:
    """Return the object that `where` names as NAME/NAMESPACE, the format of istioctl's table; `-` if `where` is
    None."""
    if where is None:
        return "-"
    namespace, _, name = where["object"].partition(" ")[2].partition("/")
    return f"{name}/{namespace}"


def _explanation(row: dict[str, Any]) -> str:
    """Return an explanation of a row that is not OK: why, at which servers, and the objects that cause it, with file
    and line."""
    deciding = [
        f"{where['object']} ({where['file']}:{where['line']})" if where["file"] else str(where["object"])
        for where in (row["rule"], row["policy"])
        if where is not None
    ]
    servers = f" at {', '.join(row['servers'])}" if row["servers"] else ""
    by = f"; by {' and '.join(deciding)}" if deciding else ""
    return f"{row['status'].lower()}: {row['host']}:{row['port']}: {row['why']}{servers}{by}"
