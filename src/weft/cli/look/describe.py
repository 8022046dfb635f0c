"""`weft describe`: describes one pod or one service as the mesh sees it, in plain English."""

from __future__ import annotations

from pathlib import Path

import click

from weft.cli.flags import completions, shared
from weft.cli.flags.choices import OneOf
from weft.cli.print.output import fail, is_data, print_data, print_line
from weft.cli.reach.names import KINDS


@click.command()
@click.argument(
    "kind",
    metavar="pod|svc",
    help="pod or svc; or kind and name at once, as in deploy/web.",
    shell_complete=OneOf("pod", "svc").shell_complete,
)
@click.argument(
    "name",
    metavar="[NAME]",
    required=False,
    help="POD, POD.NAMESPACE, a workload; or a service.",
    shell_complete=completions.described,
)
@shared.namespace
@shared.text_or_data
@shared.which_mesh
@shared.system
def describe(
    kind: str,
    name: str | None,
    namespace: str,
    output: str,
    mesh: str | None,
    kubernetes: bool,
    kubeconfig: Path | None,
    context: str | None,
    system: str,
) -> None:
    """Describe a pod or a service in plain English. The output states its identity, why it has a proxy or none, the
    services and routes that lead to it, its mutual TLS mode and the object that decides it, its policies, and the
    problems of all of these objects.

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
        print_line(line)


def _wanted(kind: str, name: str | None) -> tuple[str, str]:
    if name is None:
        kind, slash, name = kind.partition("/")
        if not slash and kind.lower() in KINDS:
            fail("no pod or service is named", "for example: weft describe pod web-0, or weft describe svc web", code=2)
        if not slash:
            fail(f"is `{kind}` a pod or a service?", f"weft describe pod {kind}, or weft describe svc {kind}", code=2)
    full_kind = KINDS.get(kind.lower())
    if full_kind is None:
        fail(f"`{kind}` cannot be described", "weft describe pod NAME, or weft describe svc NAME", code=2)
    return ("service" if full_kind == "service" else "pod"), name
