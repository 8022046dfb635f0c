"""`weft bisect`: finds the change that gave a request its current result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from weft.cli.flags import shared
from weft.cli.flags.request import asked, of_request
from weft.cli.print.moments import told_moment, told_time
from weft.cli.print.output import is_data, print_data, print_line


@click.command()
@of_request
@shared.namespace
@shared.text_or_data
@shared.which_mesh
@shared.system
def bisect(
    caller: str,
    to: str,
    method: str,
    header: tuple[str, ...],
    jwt: tuple[str, ...],
    source: str,
    namespace: str,
    output: str,
    mesh: str | None,
    kubernetes: bool,
    kubeconfig: Path | None,
    context: str | None,
    system: str,
) -> None:
    """Find the change after which a request had another result. The control plane goes back through its history (weft
    history) and explains the request after each change.

    \b
    Example: weft bisect frontend --to http://payments/charge
             weft bisect edge --to https://shop.example/ --source-address 198.51.100.7
    """
    from weft.cli.reach.connect import answered

    question = asked(caller, to, namespace, method, header, jwt, source=source)
    flip = answered(
        "bisect", question, mesh=mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, system=system
    )
    if is_data(output):
        print_data(flip, output)
        return
    if flip["moment"] is None:
        print_line(_always(flip))
        for line in flip["after"]:
            print_line(f"    {line}")
        return
    print_line("  ".join(told_moment(flip["moment"])))
    for line in flip["before"]:
        print_line(f"  - {line}")
    for line in flip["after"]:
        print_line(f"  + {line}")
    if flip.get("because"):
        print_line(f"  by {flip['because']}")


def _always(flip: dict[str, Any]) -> str:
    if not flip.get("since"):
        return "the request has had this result since the control plane started, or since before its history begins"
    since = f"the request has had this result since {told_time(flip['since'])}"
    if flip["whole"]:
        return f"{since}, and never another: before that, its caller or its destination did not exist"
    return f"{since}, and maybe for longer: the history begins then"
