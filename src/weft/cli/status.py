"""`weft status`: everything a mesh says of itself, once."""

from __future__ import annotations

import typer

from weft.cli.output import Format, print_json, print_table


def status(
    mesh: str | None = typer.Option(None, "--mesh", help="Which mesh, where several run."),
    output: Format = typer.Option(Format.TABLE, "-o", "--output", help="table, or json for a program."),
) -> None:
    """Show workloads, traffic and problems. Everything that `weft up` shows, once.

    \b
    Example: weft status
             weft status -o json
    """
    from weft.cli.choose import choose_mesh
    from weft.cli.view import mesh_view
    from weft.local.client import fetch_status

    now = fetch_status(choose_mesh(mesh))
    if output is Format.JSON:
        print_json(now)
    else:
        print_table(mesh_view(now, problems=None))
