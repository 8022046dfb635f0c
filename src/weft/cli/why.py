"""`weft why`: which objects made a resource of a proxy, part by part."""

from __future__ import annotations

from pathlib import Path

import typer

from weft.cli import candidates
from weft.cli.cluster import CONTEXT, KUBECONFIG
from weft.cli.output import TEXT_OR_JSON, TextOrJson, is_data, print_data
from weft.cli.reach import KUBERNETES, MESH, NAMESPACE, SYSTEM


def why(
    proxy: str = typer.Argument(
        ...,
        metavar="PROXY",
        help="Whose: a pod, a workload, deploy/NAME.",
        autocompletion=candidates.pods,
    ),
    resource: str = typer.Argument(
        ...,
        metavar="RESOURCE",
        help="As weft proxy-config calls it, or NAME:PATH of a part.",
        autocompletion=candidates.resources,
    ),
    namespace: str = NAMESPACE,
    output: TextOrJson = TEXT_OR_JSON,
    mesh: str | None = MESH,
    kubernetes: bool = KUBERNETES,
    kubeconfig: Path | None = KUBECONFIG,
    context: str | None = CONTEXT,
    system: str = SYSTEM,
) -> None:
    """Show which objects made a resource of a proxy. Listeners, routes, clusters and endpoints, down to the single
    filter chain, virtual host, route and policy, each with its object's file and line, or its version on a cluster.
    What no object made is weft's default.

    \b
    Example: weft why frontend 'outbound|80|v1|payments.shop.svc.cluster.local'
             weft why frontend 80
             weft why payments-v1 virtualInbound:filter_chains
    """
    from weft.cli.reach import answered

    # Names have no colon but in addresses, whose ports are numbers; a path never begins with one.
    name, colon, below = resource.rpartition(":")
    if not colon or not below[:1].isalpha():
        name, below = resource, ""
    question = {"proxy": proxy, "resource": name, "namespace": namespace, "below": below}
    answers = answered(
        "why", question, mesh=mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, system=system
    )
    if is_data(output):
        print_data(answers, output)
        return
    for answer in answers:
        typer.echo(f"{answer['kind']} {answer['name']} of {answer['proxy']}, version {answer['version']}")
        for part in answer["parts"]:
            typer.echo(f"  {part['path'] or '(the whole)'}")
            for source in part["sources"] or ("weft's default: no object asks for it",):
                typer.echo(f"    {source}")
