"""`weft ps`: lists the pods of the running meshes."""

from __future__ import annotations

import click

from weft.cli.flags import completions, shared
from weft.cli.print.output import fail, is_data, print_data, print_table, say


@click.command()
@click.argument(
    "name", required=False, help="Only this mesh; default: all running ones.", shell_complete=completions.meshes
)
@shared.mesh_as_option
@shared.wide_table_or_data("table, wide, json or yaml.")
def ps(name: str | None, mesh: str | None, output: str) -> None:
    """List the pods of every running mesh on this machine.

    \b
    Example: weft ps
             weft ps -o wide
    """
    import time

    from weft.cli.print.mesh_tables import pod_table
    from weft.cli.reach.choose import choose_mesh, one_name, running_meshes, tell_of_killed_meshes
    from weft.cli.run.lacking import end_if_workloads_lack
    from weft.local.client import fetch_status

    named = one_name(name, mesh)
    if named is not None and any(mark in named for mark in "./") and named not in running_meshes():
        fail(f"no mesh is named `{named}`", f"for a pod: weft proxy-status {named}", code=2)
    names = running_meshes() if named is None else [choose_mesh(named)]
    statuses = [fetch_status(each) for each in names]
    if named is None:
        tell_of_killed_meshes()
    if is_data(output):
        import msgspec

        print_data(
            [
                {"mesh": status.name, **msgspec.to_builtins(pod)}
                for status in statuses
                for workload in status.workloads
                for pod in workload.pods
            ],
            output,
        )
        end_if_workloads_lack(*statuses)
        return
    if not statuses:
        say("no mesh is running\nhint: start one with: weft up DIR\nhint: on a cluster: weft proxy-status --kubernetes")
        return
    print_table(pod_table(statuses, wide=output == "wide", now=time.time()))
    end_if_workloads_lack(*statuses)
