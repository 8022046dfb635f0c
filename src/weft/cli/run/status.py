"""`weft status`: shows the whole status of a mesh, once or repeatedly."""

from __future__ import annotations

import click

from weft.cli.flags import completions, shared
from weft.cli.print.output import fail, is_data, print_data, print_table


@click.command()
@click.argument(
    "name",
    required=False,
    help="The mesh's name; optional if only one is running.",
    shell_complete=completions.meshes,
)
@shared.mesh_as_option
@shared.wide_table_or_data("table (wide is the same), json or yaml.")
@click.option("-w", "--watch", is_flag=True, help="Show the status until Ctrl-C; the mesh continues to run.")
def status(name: str | None, mesh: str | None, output: str, watch: bool) -> None:
    """Show workloads, traffic and problems. Prints the view of `weft up` once; --watch keeps it up to date.

    \b
    Example: weft status
             weft status --watch
             weft status -o json
    """
    from weft.cli.reach.choose import choose_mesh, one_name
    from weft.cli.run.lacking import end_if_workloads_lack
    from weft.local.client import fetch_status

    chosen = choose_mesh(one_name(name, mesh))
    if watch:
        from weft.cli.run.watch import watch_mesh

        if output != "table":
            fail(
                "--watch cannot be combined with -o: it shows a table, or lines if stdout is not a terminal",
                "leave out -o",
                code=2,
            )
        watch_mesh(chosen)
        return
    now = fetch_status(chosen)
    if is_data(output):
        print_data(now, output)
    else:
        from weft.cli.print.mesh_tables import mesh_view

        print_table(mesh_view(now, problems=None))
    end_if_workloads_lack(now, hint="correct the files and save them; weft reads them again")
