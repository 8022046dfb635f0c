"""`weft bisect`: which change made a request end as it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from weft.cli.look.explain import FROM, HEADER, JWT, METHOD, SOURCE, TO, asked
from weft.cli.look.history import told_moment, told_time
from weft.cli.print.output import TEXT_OR_DATA, TextOrData, is_data, print_data
from weft.cli.reach.cluster import CONTEXT, KUBECONFIG
from weft.cli.reach.connect import KUBERNETES, MESH, NAMESPACE, SYSTEM


def bisect(
    caller: str = FROM,
    to: str = TO,
    method: str = METHOD,
    header: list[str] = HEADER,
    jwt: list[str] = JWT,
    source: str = SOURCE,
    namespace: str = NAMESPACE,
    output: TextOrData = TEXT_OR_DATA,
    mesh: str | None = MESH,
    kubernetes: bool = KUBERNETES,
    kubeconfig: Path | None = KUBECONFIG,
    context: str | None = CONTEXT,
    system: str = SYSTEM,
) -> None:
    """Find the change after which a request ended otherwise. The control plane goes back through what it remembers
    (weft history), and tries the request after each change.

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
        typer.echo(_always(flip))
        for line in flip["after"]:
            typer.echo(f"    {line}")
        return
    typer.echo("  ".join(told_moment(flip["moment"])))
    for line in flip["before"]:
        typer.echo(f"  - {line}")
    for line in flip["after"]:
        typer.echo(f"  + {line}")
    if flip.get("because"):
        typer.echo(f"  by {flip['because']}")


def _always(flip: dict[str, Any]) -> str:
    if not flip.get("since"):
        return "it has ended so ever since the control plane started, or for longer than it remembers"
    since = f"it has ended so since {told_time(flip['since'])}"
    if flip["whole"]:
        return f"{since}, and never otherwise: before, those who take part in it were not there"
    return f"{since}, and maybe for longer: what was before is not remembered"
