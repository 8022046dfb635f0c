"""`weft x precheck`: whether a cluster can take weft. Nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from weft.cli.flags import shared
from weft.cli.print.output import say

if TYPE_CHECKING:
    from weft.install.values import Values
    from weft.kube.precheck import Plan


@click.command()
@shared.values
@shared.which_cluster
def precheck(
    files: tuple[str, ...], assignments: tuple[str, ...], revision: str, kubeconfig: Path | None, context: str | None
) -> None:
    """Look whether weft can be installed on a cluster, or updated. Its version, your rights, what is there already.

    \b
    Exit codes: 0 nothing is in the way (there may be warnings), 1 something is.

    \b
    Example: weft x precheck
             weft x precheck --revision 0-2-0
    """
    import asyncio

    from weft.cli.install.chosen_values import chosen

    values = chosen(files, assignments, revision)

    async def run() -> int:
        from weft.base.problem import Severity
        from weft.cli.reach.cluster import client
        from weft.kube.precheck import check

        errors = 0
        async with client(kubeconfig, context) as cluster:
            async for title, problems in check(cluster, plan_of(values)):
                click.echo(f"{title}: {'ok' if not problems else ''}".rstrip())
                for problem in problems:
                    click.echo(f"  {problem}")
                    errors += problem.severity is Severity.ERROR
        return errors

    errors = asyncio.run(run())
    if errors:
        say("the cluster cannot take weft like this")
        raise Exit(1)
    say("weft can be installed: weft install")


def plan_of(values: Values) -> Plan:
    from weft.install.manifests import manifests
    from weft.kube.precheck import Plan

    return Plan(manifests(values), values.namespace, values.node.kubelet_root, values.image)
