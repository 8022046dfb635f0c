"""`weft upgrade`: moves from one revision to the next without an outage. The new revision is installed beside the old
one, namespaces are moved one by one, and when no namespace uses the old revision, it can be removed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from weft.cli.flags import shared
from weft.cli.print.output import fail, is_data, print_data, print_table, say

if TYPE_CHECKING:
    from datetime import timedelta

    from weft.kube.client import Client
    from weft.kube.revisions import Revision, Use


@click.command()
@click.option("--revision", "-r", default="", help="The new revision; installed if it does not exist yet.")
@click.option("--move", default="", help="A namespace to move to --revision; its pods are restarted.")
@shared.values_files
@shared.assignments
@click.option("--timeout", default="5m", show_default=True, help="How long to wait until everything runs.")
@shared.wide_table_or_data("table (wide is the same), json or yaml.")
@shared.which_cluster
def upgrade(
    revision: str,
    move: str,
    files: tuple[str, ...],
    assignments: tuple[str, ...],
    timeout: str,
    output: str,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Install a new revision, move namespaces to it, and show which namespaces use which revision.

    \b
    Example: weft upgrade --revision 0-2-0                  a second revision, not in use yet
             weft upgrade --revision 0-2-0 --move payments  one namespace; check it, then the next
             weft upgrade                                   which namespaces use which revision
             weft uninstall --revision 0-1-0                when no namespace uses it any more
    To go back, move the namespaces to the old revision in the same way.
    """
    import asyncio

    from weft.cli.flags.duration import duration_of

    patience = duration_of(timeout, "--timeout 5m")
    if move and not revision:
        fail("the target revision is missing", f"weft upgrade --revision NAME --move {move}", code=2)

    async def run() -> None:
        from weft.cli.reach.cluster import client

        async with client(kubeconfig, context) as cluster:
            if move:
                await _move(cluster, move, revision, patience)
            elif revision:
                await _install(cluster, revision, files, assignments, patience)
            await _show(cluster, output)

    asyncio.run(run())


async def _install(
    cluster: Client, revision: str, files: Sequence[str], assignments: Sequence[str], patience: timedelta
) -> None:
    from weft.cli.install.chosen_values import chosen
    from weft.cli.install.install import put, wait_for

    values = chosen(files, assignments, revision)
    await put(cluster, values, dry_run=False)
    await wait_for(cluster, values, patience)


async def _move(cluster: Client, namespace: str, revision: str, patience: timedelta) -> None:
    import asyncio

    from weft.cli.print.progress import progress
    from weft.kube.error import ApiError
    from weft.kube.revisions import move, revisions
    from weft.kube.rollout import follow

    if revision not in (known := {each.name for each in await revisions(cluster)}):
        fail(f"there is no revision {revision}", f"installed: {', '.join(sorted(known)) or 'none'}")
    last = ""
    try:
        restarted = await move(cluster, namespace, revision)
        with progress() as shown:
            async with asyncio.timeout(patience.total_seconds()):
                for resource, name in restarted:
                    async for state in follow(cluster, resource, namespace, name):
                        last = f"{resource.kind} {namespace}/{name}: {state}"
                        shown.now(last)
    except TimeoutError:
        fail(
            f"not all pods are restarted yet: {last}",
            f"the rollout continues; see the pods: kubectl get pods -n {namespace}",
        )
    except ApiError as error:
        if error.not_found and error.problem.where.object.endswith(f"/namespaces/{namespace}"):
            fail(f"there is no namespace {namespace}", "list them: weft upgrade")
        raise
    say(f"namespace {namespace} uses revision {revision}")


async def _show(cluster: Client, output: str) -> None:
    from weft.kube.revisions import revisions, uses

    installed, used = await revisions(cluster), await uses(cluster)
    if is_data(output):
        print_data({"revisions": installed, "namespaces": used}, output)
        return
    _print(installed, used)
    _say_next(installed, used)


def _print(installed: list[Revision], used: list[Use]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("NAMESPACE", "NEW PODS GET", "PODS NOW"):
        table.add_column(heading, no_wrap=True)
    known = {each.name for each in installed}
    for use in used:
        pods = ", ".join(f"{count} of {name}" for name, count in use.pods.items())
        gets = use.revision if use.revision in known else "no proxy"
        table.add_row(use.namespace, gets, pods or "none")
    for each in installed:
        say(f"revision {each.name}: weft {each.version} in {each.namespace}")
    if used:
        print_table(table)


def _say_next(installed: list[Revision], used: list[Use]) -> None:
    names = [each.name for each in installed]
    if not names:
        say("weft is not installed on this cluster; install it: weft install")
    for use in used:
        if use.revision and use.revision not in names:
            say(
                f"namespace {use.namespace} requests revision {use.revision}, which is not installed: "
                "new pods get no proxy"
            )
            if names:
                say(f"  move it: weft upgrade --revision {names[-1]} --move {use.namespace}")
    for name in names if len(names) > 1 else ():
        staying = [use.namespace for use in used if use.revision == name or name in use.pods]
        if not staying:
            say(f"no namespace uses revision {name}; to remove it: weft uninstall --revision {name}")
        else:
            other = next(each for each in reversed(names) if each != name)
            move = f"weft upgrade --revision {other} --move {staying[0]}"
            say(f"namespaces that use revision {name}: {len(staying)}; to move one: {move}")
