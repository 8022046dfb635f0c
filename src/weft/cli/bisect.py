"""`weft bisect`: which change made a request end as it does."""

from __future__ import annotations

from pathlib import Path

import typer

from weft.cli.cluster import CONTEXT, KUBECONFIG
from weft.cli.explain_ import FROM, HEADER, JWT, METHOD, TO, asked
from weft.cli.history import told_moment
from weft.cli.output import TEXT_OR_JSON, TextOrJson, is_data, print_data, say
from weft.cli.reach import KUBERNETES, MESH, NAMESPACE, SYSTEM


def bisect(
    caller: str = FROM,
    to: str = TO,
    method: str = METHOD,
    header: list[str] = HEADER,
    jwt: list[str] = JWT,
    namespace: str = NAMESPACE,
    output: TextOrJson = TEXT_OR_JSON,
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
    """
    from weft.cli.reach import answered

    question = asked(caller, to, namespace, method, header, jwt)
    flip = answered(
        "bisect", question, mesh=mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, system=system
    )
    if is_data(output):
        print_data(flip, output)
        return
    if flip["moment"] is None:
        say("it has ended so ever since the control plane started, or for longer than it remembers")
        return
    typer.echo("  ".join(told_moment(flip["moment"])))
    for line in flip["before"]:
        typer.echo(f"  - {line}")
    for line in flip["after"]:
        typer.echo(f"  + {line}")
