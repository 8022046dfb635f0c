"""`weft status`: everything a mesh says of itself, once or again and again."""

from __future__ import annotations

import typer

from weft.cli.flags import completions
from weft.cli.print.output import Format, fail, is_data, print_data, print_table


def status(
    name: str | None = typer.Argument(
        None, help="The mesh's name; may be left out where only one runs.", autocompletion=completions.meshes
    ),
    mesh: str | None = typer.Option(None, "--mesh", help="The same.", autocompletion=completions.meshes),
    output: Format = typer.Option(Format.TABLE, "-o", "--output", help="table (wide is the same), json or yaml."),
    watch: bool = typer.Option(False, "-w", "--watch", help="Go on showing it until Ctrl-C; the mesh runs on."),
) -> None:
    """Show workloads, traffic and problems. Everything that `weft up` shows, once, or with --watch as it changes.

    \b
    Example: weft status
             weft status --watch
             weft status -o json
    """
    from weft.cli.reach.choose import choose_mesh, one_name
    from weft.local.client import fetch_status

    chosen = choose_mesh(one_name(name, mesh))
    if watch:
        from weft.cli.run.watch import watch_mesh

        if output is not Format.TABLE:
            fail("--watch shows a table, or lines where there is no terminal", "leave -o out", code=2)
        watch_mesh(chosen)
        return
    now = fetch_status(chosen)
    if is_data(output):
        print_data(now, output)
    else:
        from weft.cli.print.mesh_tables import mesh_view

        print_table(mesh_view(now, problems=None))
