"""`weft x precheck`: checks whether weft can be installed on a cluster. It writes nothing."""

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
    """Check whether weft can be installed or updated on a cluster. Checks the cluster's version, your permissions and
    existing objects.

    \b
    Exit codes: 0 it can (there may be warnings), 1 it cannot.

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
        say("weft cannot be installed on this cluster as it is")
        raise Exit(1)
    say("weft can be installed: weft install")


def plan_of(values: Values) -> Plan:
    from weft.install.manifests import manifests
    from weft.kube.precheck import Plan

    return Plan(manifests(values), values.namespace, values.node.kubelet_root, values.image)
