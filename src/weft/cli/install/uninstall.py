"""`weft uninstall`: removes one revision of weft, or with --purge all of weft, including the mesh's resources and the
CA."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from weft.cli.flags import shared
from weft.cli.print.output import fail, say

if TYPE_CHECKING:
    from weft.kube.client import Client
    from weft.kube.made_gateways import GatewayObjects
    from weft.kube.revisions import Revision

_PATIENCE = 120.0  # seconds for the pods of Gateways to finish their requests
_CLEANUP = 120.0  # seconds to remove the agent's directories from all nodes
_LOOK_SECONDS = 0.5


class _Agent(NamedTuple):
    """A DaemonSet of nodes' agents, and the Secrets with which its image is pulled."""

    manifest: dict[str, Any]
    image_pull_secrets: tuple[dict[str, Any], ...]


@click.command()
@click.option("--revision", "-r", default="default", show_default=True, help="The revision to remove.")
@click.option(
    "--purge", is_flag=True, help="Remove every revision, the CRDs with all of their objects, and the CA's root."
)
@click.option("--force", is_flag=True, help="Remove the revision even if pods still use it; they lose their identity.")
@click.option("--dry-run", is_flag=True, help="Print the objects that would be removed, and remove nothing.")
@click.option("-y", "--yes", "--skip-confirmation", is_flag=True, help="Do not ask for confirmation.")
@shared.which_cluster
def uninstall(
    revision: str, purge: bool, force: bool, dry_run: bool, yes: bool, kubeconfig: Path | None, context: str | None
) -> None:
    """Remove weft from a cluster.

    The webhooks are removed first, so that no pod is blocked by a webhook without a server. The resources of the mesh
    and the CA's root are kept, unless --purge is given: a new installation continues with them. Gateways are kept, too;
    the Deployments and Services that weft created for them are removed. On each node, the directories of the agent are
    removed by a pod that runs for a moment.

    \b
    Example: weft uninstall
             weft uninstall --dry-run
             weft uninstall --revision 0-1-0
             weft uninstall --purge
    """
    import asyncio

    async def run() -> None:
        from weft.cli.reach.cluster import client

        async with client(kubeconfig, context) as cluster:
            await _uninstall(cluster, revision, purge=purge, force=force, dry_run=dry_run, yes=yes)

    asyncio.run(run())


async def _uninstall(cluster: Client, revision: str, *, purge: bool, force: bool, dry_run: bool, yes: bool) -> None:
    from weft.cli.print.progress import confirm
    from weft.install.names import OWNED_BY, InstallationNames
    from weft.install.node import directories
    from weft.kube.made_gateways import made

    labels = ",".join(f"{name}={value}" for name, value in OWNED_BY.items())
    if not purge:
        labels = InstallationNames(revision, "").selector
    removed = [each for each in await _installed(cluster) if purge or each.name == revision]
    left = await _left(cluster, labels, purge=purge)
    if not left:
        known = ", ".join(sorted(each.name for each in await _installed(cluster)))
        fail(
            f"there is no revision {revision}" if not purge else "weft is not installed on this cluster",
            f"installed: {known}" if known else "",
        )
    gateways = await made(cluster, None if purge else revision)
    used = await _used(cluster, {revision} if not purge else None, gateways)
    agents = await _agents(cluster, labels)
    if dry_run:
        for name in (*left, *(str(reference) for each in gateways for _, reference in each.objects)):
            click.echo(name)
        for path in (path for agent in agents for path in directories(agent.manifest)):
            click.echo(f"directory {path} of each node")
        if used:
            say(f"pods still use these objects: {', '.join(used)}")
        say("nothing was removed")
        return
    if used and not force:
        _refuse(used)
    what = "everything of weft, every VirtualService and other resource of the mesh, and the CA's root" if purge else (
        f"revision {revision} of weft"
    )  # fmt: skip
    if gateways:
        what += f", and the objects that weft created for the Gateways {', '.join(map(str, gateways))}"
    confirm(f"remove {what} ({len(left) + sum(len(each.objects) for each in gateways)} objects)?", yes=yes)
    await _remove(cluster, labels, revision=None if purge else revision, force=force)
    for agent in agents:
        await _clean_nodes(cluster, agent)
    if purge:
        await _purge(cluster, {each.namespace for each in removed} or {"istio-system"})
        for namespace in sorted({each.namespace for each in removed}):
            say(f"the namespace {namespace} is kept; to remove it: kubectl delete namespace {namespace}")
    else:
        await _disclaim(cluster, removed)
        say("resources of the mesh and the CA's root are kept; to remove those too: weft uninstall --purge")


async def _installed(cluster: Client) -> list[Revision]:
    from weft.kube.revisions import revisions

    return await revisions(cluster)


async def _left(cluster: Client, labels: str, *, purge: bool) -> list[str]:
    """Return the objects with these labels, as text; with `purge` the CustomResourceDefinitions, too."""
    from weft.kube.apply import owned
    from weft.kube.resource import CUSTOM_RESOURCE_DEFINITIONS

    objects = [str(reference) async for _, reference in owned(cluster, labels)]
    kinds = (await cluster.list(CUSTOM_RESOURCE_DEFINITIONS, dict, labels=labels)).items if purge else ()
    return [*objects, *(f"CustomResourceDefinition {each['metadata']['name']}" for each in kinds)]


async def _used(cluster: Client, revisions: set[str] | None, gateways: tuple[GatewayObjects, ...]) -> list[str]:
    """Return a text for each namespace with pods that use one of these revisions (None: any revision): the namespace
    and the number of its pods. Pods of `gateways` do not count, because they are removed as well."""
    from weft.kube.revisions import uses

    used = []
    for use in await uses(cluster, beside={(each.namespace, each.gateway) for each in gateways}):
        pods = sum(count for name, count in use.pods.items() if revisions is None or name in revisions)
        if pods:
            used.append(f"{use.namespace} ({pods} {'pod' if pods == 1 else 'pods'})")
    return used


def _refuse(used: list[str]) -> NoReturn:
    fail(
        f"pods still use what is to be removed: {', '.join(used)}",
        "remove the label from these namespaces and restart their pods, or move them: weft upgrade --help\n"
        "without the nodes' agent, these pods lose their identities, and kubelet cannot unmount their volumes;\n"
        "to remove weft anyway: --force",
    )


async def _remove(cluster: Client, labels: str, *, revision: str | None, force: bool) -> None:
    """Remove the objects of `revision`, or of all revisions if it is None; `labels` select these objects. The webhooks
    and the control plane are removed first, because the control plane would create the pods of Gateways again. Then
    these pods are removed, and the nodes' agent last, because pods need it until they end. If pods of Gateways have
    not ended in time, the command ends before the agent is removed, unless `force` is set."""
    from weft.cli.print.progress import Progress, progress
    from weft.kube import made_gateways
    from weft.kube.apply import remove
    from weft.kube.resource import DEPLOYMENTS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS

    count = 0

    async def remove_made(shown: Progress) -> tuple[GatewayObjects, ...]:
        nonlocal count
        gateways = await made_gateways.made(cluster, revision)
        async for name in made_gateways.remove(cluster, gateways):
            count += 1
            shown.now(f"removed: {name}")
        return gateways

    with progress() as shown:
        async for done in remove(cluster, labels, kinds=(MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, DEPLOYMENTS)):
            count += 1
            shown.now(f"{done.outcome}: {done.what}")
        left = await made_gateways.until_ended(cluster, await remove_made(shown), _PATIENCE)
        if left and not force:
            where = ", ".join(f"{namespace} ({pods})" for namespace, pods in left.items())
            fail(
                f"pods of Gateways have not ended: {where}",
                "the nodes' agent is kept for these pods; when they have ended, run weft uninstall again",
            )
        async for done in remove(cluster, labels):
            count += 1
            shown.now(f"{done.outcome}: {done.what}")
        await remove_made(shown)  # created in the meantime; nothing can create more now
    say(f"{count} objects removed")


async def _agents(cluster: Client, labels: str) -> list[_Agent]:
    """Return the nodes' agents with these labels. They are read before they are removed, because the nodes are cleaned
    afterwards with this data (`_clean_nodes`)."""
    from weft.kube.error import ApiError
    from weft.kube.resource import DAEMON_SETS, SERVICE_ACCOUNTS

    agents = []
    for manifest in (await cluster.list(DAEMON_SETS, dict, labels=f"{labels},app=weft-node")).items:
        try:
            account = await cluster.get(
                SERVICE_ACCOUNTS, manifest["metadata"]["name"], namespace=manifest["metadata"]["namespace"]
            )
        except ApiError as error:
            if not error.not_found:
                raise
            account = {}
        agents.append(_Agent(manifest, tuple(account.get("imagePullSecrets") or ())))
    return agents


async def _clean_nodes(cluster: Client, agent: _Agent) -> None:
    """Remove the directories of a removed agent from all of its nodes, by a temporary DaemonSet. If that takes too
    long, print the directories that may be left."""
    import asyncio

    from weft.cli.print.progress import progress
    from weft.install.node import cleanup, directories
    from weft.kube.resource import DAEMON_SETS, NODES, PODS
    from weft.kube.rollout import follow

    if not (await cluster.list(NODES, dict)).items:
        return
    made = cleanup(agent.manifest, agent.image_pull_secrets)
    name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]
    selector = ",".join(f"{key}={value}" for key, value in agent.manifest["spec"]["selector"]["matchLabels"].items())
    last = "the agent's pods have not ended"
    try:
        with progress() as shown:
            async with asyncio.timeout(_CLEANUP):
                while (await cluster.list(PODS, dict, namespace=namespace, labels=selector)).items:
                    shown.now("waiting for the end of the nodes' agents")
                    await asyncio.sleep(_LOOK_SECONDS)
                await cluster.create(DAEMON_SETS, made, namespace=namespace)
                async for state in follow(cluster, DAEMON_SETS, namespace, name):
                    last = f"{state}"
                    shown.now(f"directories of the agent removed from nodes: {state.ready} of {state.wanted}")
    except TimeoutError:
        paths = " ".join(directories(agent.manifest))
        say(f"on some nodes, directories of the agent are left, with the keys of pods that still run ({last})")
        say(f"  remove them on each node: rm -r {paths}")
    finally:
        await cluster.delete(DAEMON_SETS, name, namespace=namespace)


async def _disclaim(cluster: Client, removed: list[Revision]) -> None:
    """Remove the claims of the removed revisions: annotations on the ConfigMaps in which the CA's roots are
    published. A remaining control plane then removes the roots that no revision claims."""
    from weft.install.names import InstallationNames
    from weft.kube.resource import CONFIG_MAPS
    from weft.model.proxy import ROOT_CONFIG_MAP

    claims = [InstallationNames(each.name, each.namespace).roots_annotation for each in removed]
    for config_map in (await cluster.list(CONFIG_MAPS, dict, fields=f"metadata.name={ROOT_CONFIG_MAP}")).items:
        metadata = config_map["metadata"]
        annotations = [each for each in claims if each in (metadata.get("annotations") or {})]
        if annotations:
            patch = {"metadata": {"annotations": dict.fromkeys(annotations)}}
            await cluster.patch(CONFIG_MAPS, ROOT_CONFIG_MAP, patch, namespace=metadata["namespace"])


async def _purge(cluster: Client, namespaces: set[str]) -> None:
    """Remove what remains after all revisions, which were installed in `namespaces`, are removed: CRDs, leases, the
    CA's root, and its copies in every namespace."""
    from weft.install.crds import crds
    from weft.install.names import OWNED_BY, ROOT_SECRET
    from weft.kube.error import ApiError
    from weft.kube.resource import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, LEASES, NAMESPACES, SECRETS
    from weft.model.proxy import ROOT_CONFIG_MAP

    for definition in crds():
        name = definition["metadata"]["name"]
        try:
            existing = await cluster.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        except ApiError as error:
            if error.not_found:
                continue
            raise
        if OWNED_BY.items() <= (existing["metadata"].get("labels") or {}).items():
            await cluster.delete(CUSTOM_RESOURCE_DEFINITIONS, name)
    for namespace in sorted(namespaces):
        await cluster.delete(SECRETS, ROOT_SECRET, namespace=namespace)
        for lease in (await cluster.list(LEASES, dict, namespace=namespace)).items:
            if lease["metadata"]["name"].startswith("weft-leader"):
                await cluster.delete(LEASES, lease["metadata"]["name"], namespace=namespace)
    for namespace_object in (await cluster.list(NAMESPACES, dict)).items:
        await cluster.delete(CONFIG_MAPS, ROOT_CONFIG_MAP, namespace=namespace_object["metadata"]["name"])
    say("the CRDs with all of their objects, the CA's root and its copies are removed")
