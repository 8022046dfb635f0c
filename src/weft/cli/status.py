"""`weft status`: everything a mesh says of itself, once."""

from __future__ import annotations

import typer

from weft.cli.output import Format, print_json, print_table


def status(
    name: str | None = typer.Argument(None, help="The mesh's name; may be left out where only one runs."),
    mesh: str | None = typer.Option(None, "--mesh", help="The same."),
    output: Format = typer.Option(Format.TABLE, "-o", "--output", help="table, or json for a program."),
) -> None:
    """Show workloads, traffic and problems. Everything that `weft up` shows, once.

    \b
    Example: weft status
             weft status -o json
    """
    from weft.cli.choose import choose_mesh, one_name
    from weft.local.client import fetch_status

    chosen = choose_mesh(one_name(name, mesh))
    now = fetch_status(chosen)
    if output is Format.JSON:
        print_json(now)
    else:
        from weft.cli.view import mesh_view

        print_table(mesh_view(now, problems=None))
