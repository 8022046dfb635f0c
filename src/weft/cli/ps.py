"""`weft ps`: the pods of the running meshes."""

from __future__ import annotations

import typer

from weft.cli.output import Format, print_json, print_table, say


def ps(
    mesh: str | None = typer.Option(None, "--mesh", help="Only this mesh; all that run if none is given."),
    output: Format = typer.Option(Format.TABLE, "-o", "--output", help="table, wide or json."),
) -> None:
    """List the pods that run, of every mesh on this machine.

    \b
    Example: weft ps
             weft ps -o wide
    """
    import time

    from weft.cli.choose import choose_mesh, running_meshes
    from weft.cli.view import pod_table
    from weft.local.client import fetch_status

    names = running_meshes() if mesh is None else [choose_mesh(mesh)]
    statuses = [fetch_status(name) for name in names]
    if output is Format.JSON:
        print_json([pod for status in statuses for each in status.workloads for pod in each.pods])
        return
    if not statuses:
        say("no mesh is running\nhint: start one with: weft up DIR")
    for status in statuses:
        if len(statuses) > 1:
            say(f"\nmesh {status.name} ({status.directory})")
        print_table(pod_table(status.workloads, wide=output is Format.WIDE, now=time.time()))
