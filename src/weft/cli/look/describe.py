"""`weft describe`: what a mesh makes of one pod or one service, in plain English."""

from __future__ import annotations

from pathlib import Path

import typer

from weft.cli.flags import completions
from weft.cli.print.output import TEXT_OR_DATA, TextOrData, fail, is_data, print_data
from weft.cli.reach.cluster import CONTEXT, KUBECONFIG
from weft.cli.reach.connect import KINDS, KUBERNETES, MESH, NAMESPACE, SYSTEM


def describe(
    kind: str = typer.Argument(
        ...,
        metavar="pod|svc",
        help="What it is: pod or svc; or at once, as in deploy/web.",
        autocompletion=completions.one_of("pod", "svc"),
    ),
    name: str | None = typer.Argument(
        None, metavar="NAME", help="POD, POD.NAMESPACE, a workload; or a service.", autocompletion=completions.described
    ),
    namespace: str = NAMESPACE,
    output: TextOrData = TEXT_OR_DATA,
    mesh: str | None = MESH,
    kubernetes: bool = KUBERNETES,
    kubeconfig: Path | None = KUBECONFIG,
    context: str | None = CONTEXT,
    system: str = SYSTEM,
) -> None:
    """Describe a pod or a service in plain English. Who it is, why it has a proxy or none, which services and routes
    lead to it, which mutual TLS mode holds and who decides that, which policies guard it, and what is wrong with any of
    these objects.

    \b
    Example: weft describe pod web-0.shop
             weft describe svc payments -n shop
    """
    from weft.cli.reach.connect import answered

    wanted, word = _wanted(kind, name)
    question = {"kind": wanted, "name": word, "namespace": namespace}
    answer = answered(
        "describe", question, mesh=mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, system=system
    )
    if is_data(output):
        print_data(answer["facts"], output)
        return
    for line in answer["lines"]:
        typer.echo(line)


def _wanted(kind: str, name: str | None) -> tuple[str, str]:
    if name is None:
        kind, slash, name = kind.partition("/")
        if not slash and kind.lower() in KINDS:
            fail("nobody is named", "for example: weft describe pod web-0, or weft describe svc web", code=2)
        if not slash:
            fail(f"is `{kind}` a pod or a service?", f"weft describe pod {kind}, or weft describe svc {kind}", code=2)
    known = KINDS.get(kind.lower())
    if known is None:
        fail(f"`{kind}` cannot be described", "weft describe pod NAME, or weft describe svc NAME", code=2)
    return ("service" if known == "service" else "pod"), name
