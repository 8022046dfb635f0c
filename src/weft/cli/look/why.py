"""`weft why`: shows which objects and rules produced a resource of a proxy, part by part."""

from __future__ import annotations

from pathlib import Path

import click

from weft.cli.flags import completions, shared
from weft.cli.print.output import fail, is_data, print_data, print_line


@click.command()
@click.argument(
    "proxy", metavar="PROXY", help="The proxy: a pod, a workload, deploy/NAME.", shell_complete=completions.pods
)
@click.argument(
    "resource",
    metavar="[KIND] RESOURCE[.PATH]",
    nargs=-1,
    required=True,
    help="The resource's name in weft proxy-config; with a path, only that part of it.",
    shell_complete=completions.resources,
)
@shared.namespace
@shared.text_or_data
@shared.which_mesh
@shared.system
def why(
    proxy: str,
    resource: tuple[str, ...],
    namespace: str,
    output: str,
    mesh: str | None,
    kubernetes: bool,
    kubeconfig: Path | None,
    context: str | None,
    system: str,
) -> None:
    """Show which objects and rules made a resource of a proxy. The output lists the parts of the resource, down to
    single filter chains, virtual hosts, routes, policies and fields. Each part is shown with the objects it was made
    from, by file and line, or by their version on a cluster, and with the default or rule that decides. KIND is
    listener, route, cluster, endpoints or secret; it is needed only if resources of several kinds have the name.

    \b
    Example: weft why frontend 'outbound|80|v1|payments.shop.svc.cluster.local'
             weft why frontend cluster 'outbound|80||payments.shop.svc.cluster.local.circuit_breakers'
             weft why frontend route 80
             weft why payments-v1 virtualInbound.filter_chains
    """
    from weft.cli.reach.connect import answered

    if len(resource) > 2:
        fail(f"`{' '.join(resource)}` is not a resource", "name a kind and a resource, or only a resource", code=2)
    *kinds, name = resource
    question = {"proxy": proxy, "resource": name, "namespace": namespace, "kind": kinds[0].lower() if kinds else ""}
    answers = answered(
        "why", question, mesh=mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, system=system
    )
    if is_data(output):
        print_data(answers, output)
        return
    for answer in answers:
        version = f", version {answer['version']}" if answer["version"] else ""
        print_line(f"{answer['kind']} {answer['name']} of {answer['proxy']}{version}")
        for refusal in answer["refused"]:
            print_line(f"  rejected: {refusal}")
        for part in answer["parts"]:
            print_line(f"  {part['path'] or '(the whole)'}")
            for source in part["sources"]:
                print_line(f"    {source}")
            for rule in part["rules"]:
                print_line(f"    {'rule' if part['sources'] else 'default'} {rule['name']}: {rule['says']}")
