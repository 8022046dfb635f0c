"""`weft history`: lists the changes of a mesh since its control plane started, moment by moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from weft.cli.flags import shared
from weft.cli.print.moments import told_moment, told_time
from weft.cli.print.output import is_data, print_data, say


@click.command()
@click.option(
    "-l",
    "--last",
    "number",
    metavar="NUMBER",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="How many moments to show; 0 for all.",
)
@click.option(
    "-A",
    "--all",
    "every",
    is_flag=True,
    help="Also show moments at which only pods changed: created, deleted, or ready.",
)
@shared.table_or_data
@shared.which_mesh
@shared.system
def history(
    number: int,
    every: bool,
    output: str,
    mesh: str | None,
    kubernetes: bool,
    kubeconfig: Path | None,
    context: str | None,
    system: str,
) -> None:
    """Show what has changed in a mesh, and when. Each moment has a number, which weft diff and weft explain --at take,
    and a digest of all objects: equal digests mean equal objects. The control plane remembers the last thousand moments
    since it was started. With --history DIRECTORY, weft up and weft control keep them across restarts.

    \b
    Example: weft history
             weft diff @-1
             weft explain frontend --to http://payments/ --at @-1
             weft up examples/shop --history past
    """
    from weft.cli.print.columns import lines
    from weft.cli.reach.connect import answered

    past = answered("history", mesh=mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, system=system)
    moments = [each for each in past["moments"] if every or not _of_endpoints(each)][-number:]
    if is_data(output):
        print_data({"begun": past["begun"], "digest": past["digest"], "moments": moments}, output)
        return
    if not moments:
        say(
            f"nothing has changed since {told_time(past['begun'])}"
            if past["begun"]
            else "the control plane has not read any objects yet"
        )
        return
    for line in lines(("MOMENT", "TIME", "DIGEST", "WHAT CHANGED"), [told_moment(each) for each in moments]):
        click.echo(line)
    say(f"the control plane has been running since {told_time(past['begun'])}")


def _of_endpoints(moment: dict[str, Any]) -> bool:
    return all(each["object"]["kind"] in ("Pod", "EndpointSlice") for each in moment["changes"])
