"""`weft check-inject`: shows whether a pod gets a proxy, from which webhook and revision, and why. On one machine the
Workload decides; on a cluster the webhooks, the namespace and the pod, read with the user's permissions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.flags import completions, shared
from weft.cli.print.output import fail, is_data, print_data, say
from weft.cli.reach.connect import refuse_two

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from weft.cli.look.check_inject.files import FileVerdict, WrittenPods
    from weft.cli.look.check_inject.webhooks import Configuration, InjectionVerdict
    from weft.cli.reach.local import LocalReach
    from weft.inject.settings import InjectionSettings
    from weft.kube.client import Client
    from weft.kube.resource import ResourceKind

COLUMNS = ("WEBHOOK", "REVISION", "INJECTED", "REASON")


@click.command()
@click.argument(
    "target",
    metavar="[POD]",
    required=False,
    help="POD, POD.NAMESPACE, deploy/NAME or a workload.",
    shell_complete=completions.pods,
)
@click.option("-l", "--labels", metavar="A=B,…", default="", help="A pod with these labels, instead of a name.")
@click.option(
    "-f",
    "--file",
    "--filename",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Every pod and workload in these files or directories; a cluster is used only if one is named.",
)
@shared.namespace
@shared.table_or_data
@shared.which_mesh
@click.option(
    "-r",
    "--revision",
    default="default",
    show_default=True,
    help="With --file and no cluster: the revision that would inject.",
)
def check_inject(
    target: str | None,
    labels: str,
    file: tuple[Path, ...],
    namespace: str,
    output: str,
    mesh: str | None,
    kubernetes: bool,
    kubeconfig: Path | None,
    context: str | None,
    revision: str,
) -> None:
    """Show which webhook injects a pod, and why. Labels take effect when a pod is created. If a running pod has a
    proxy and a new pod would get none, or the reverse, a message reports that.

    Files need neither a cluster nor a mesh: a default installation is assumed, and a namespace has the labels that the
    files give it.

    \b
    Example: weft check-inject web-0.shop
             weft check-inject deploy/web -n shop
             weft check-inject -n shop -l app=web,sidecar.istio.io/inject=false
             weft check-inject -f deploy/
             weft check-inject -f web.yaml -n shop --kubernetes
    """
    if sum((target is not None, bool(labels), bool(file))) != 1:
        fail("no pod is given, or more than one", "give one of: a POD, -l LABELS, or --file FILE", code=2)
    if file:
        refuse_two(mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context)
        named = kubernetes or kubeconfig is not None or context is not None
        ask = (lambda pods: _of_files_there(pods, kubeconfig, context)) if named else None
        _print_of_files(_of_files(file, namespace, revision, ask), output)
        return
    from weft.cli.reach.connect import reach
    from weft.cli.reach.control import only_pods
    from weft.cli.reach.local import LocalReach

    reached = reach(mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context)
    reached.close()
    only_pods(reached, "injection")
    if isinstance(reached, LocalReach):
        if target is None:
            fail("labels can only be checked on a cluster", "on one machine, name a pod or a workload: weft ps", code=2)
        _print([_by_workload(reached, target, namespace)], output)
        return
    import asyncio

    from weft.cli.reach.cluster import client

    async def asked() -> list[InjectionVerdict]:
        async with client(kubeconfig, context) as cluster:
            within = namespace or cluster.connection.namespace
            if target is not None:
                pod, within = await _pod_or_template(cluster, target, namespace)
            else:
                pod = {"metadata": {"labels": _labels(labels)}}
            return await _of_cluster(cluster, pod, within)

    _print(asyncio.run(asked()), output)


def _by_workload(reached: LocalReach, target: str, namespace: str) -> InjectionVerdict:
    import msgspec

    from weft.cli.look.check_inject.webhooks import InjectionVerdict

    question = msgspec.json.encode({"kind": "pod", "name": target, "namespace": namespace}).decode()
    proxy = msgspec.json.decode(reached.ask("describe", {"question": question}))["facts"]["proxy"]
    where = proxy["where"]
    place = f": {where['object']} ({where['file']}:{where['line']})" if where else ""
    return InjectionVerdict("-", "-", proxy["has"], f"{proxy['why']}{place}")


async def _of_cluster(cluster: Client, pod: dict[str, Any], namespace: str) -> list[InjectionVerdict]:
    from weft.cli.look.check_inject.webhooks import configurations, verdict
    from weft.kube.error import ApiError
    from weft.kube.resource import MUTATING_WEBHOOKS, NAMESPACES

    try:
        document = await cluster.get(NAMESPACES, namespace)
    except ApiError as error:
        if not error.not_found:
            raise
        fail(f"there is no namespace {namespace}", "kubectl get namespaces lists them; another one: -n NAMESPACE")
    labels = document["metadata"].get("labels") or {}
    webhooks = configurations((await cluster.list(MUTATING_WEBHOOKS, dict)).items)
    if not webhooks:
        say(
            "no webhook of this cluster injects a proxy\n"
            "hint: weft install, or kubectl get mutatingwebhookconfigurations"
        )
    verdicts = [verdict(each, pod, namespace, labels, await _settings(cluster, each)) for each in webhooks]
    _tell(pod, verdicts)
    await _tell_unanswered(cluster)
    return verdicts


async def _tell_unanswered(cluster: Client) -> None:
    """Print weft's own webhooks that do not respond to the API server: no pod that they select can be created."""
    from weft.kube.error import ApiError
    from weft.kube.webhooks import unanswered

    try:
        problems = await unanswered(cluster, "app.kubernetes.io/name=weft,app=sidecar-injector")
    except ApiError as error:
        if not error.forbidden:
            raise
        return
    for problem in problems:
        say(str(problem))


async def _settings(cluster: Client, configuration: Configuration) -> InjectionSettings:
    """Return the settings of the injector that the webhooks of `configuration` call. Return the default settings if
    the user may not read the injector's settings, or if they belong to another mesh."""
    from weft.inject.settings import InjectionSettings, SettingsError, read_config_map
    from weft.install.names import InstallationNames
    from weft.kube.error import ApiError
    from weft.kube.resource import CONFIG_MAPS

    names = InstallationNames(configuration.revision, configuration.namespace)
    where = f"ConfigMap {names.namespace}/{names.injector}"
    try:
        config_map = await cluster.get(CONFIG_MAPS, names.injector, namespace=names.namespace or "default")
        return read_config_map(config_map.get("data") or {}, where)
    except SettingsError:
        return InjectionSettings()  # settings of another mesh
    except ApiError as error:
        if error.forbidden:
            say(f"you may not read {where}: the injector's default settings are assumed")
        elif not error.not_found:
            raise
        return InjectionSettings()


async def _pod_or_template(cluster: Client, word: str, namespace: str) -> tuple[dict[str, Any], str]:
    """Return the pod that `word` names, or, if `word` names a workload, the workload's pod template; and the
    namespace of the pod or workload."""
    from weft.cli.reach.names import split
    from weft.kube import resource
    from weft.kube.error import ApiError

    kind, name, given = split(word, namespace)
    within = given or cluster.connection.namespace
    resources: dict[str, ResourceKind] = {
        "pod": resource.PODS,
        "deployment": resource.DEPLOYMENTS,
        "statefulset": resource.STATEFUL_SETS,
        "daemonset": resource.DAEMON_SETS,
        "replicaset": resource.REPLICA_SETS,
        "job": resource.JOBS,
    }
    if kind == "service":
        fail(f"`{word}` is not a workload", "name a pod of this service, or deploy/NAME")
    for each in (kind,) if kind else ("pod", "deployment", "statefulset", "daemonset"):
        try:
            document = await cluster.get(resources[each], name, namespace=within)
        except ApiError as error:
            if not error.not_found:
                raise
            continue
        return (document if each == "pod" else document["spec"]["template"]), within
    return fail(
        f"there is no {kind or 'pod or workload'} `{name}` in namespace {within}", f"kubectl get pods -n {within}"
    )


def _of_files(
    paths: Sequence[Path], namespace: str, revision: str, ask: Callable[[WrittenPods], list[FileVerdict]] | None
) -> list[FileVerdict]:
    import msgspec

    from weft.cli.look.check_inject.files import read, verdicts
    from weft.inject.settings import InjectionSettings

    pods = read(paths, namespace or "default")
    if ask is not None:
        return ask(pods)
    unknown = sorted({each.namespace for each in pods.templates if each.kind != "Workload"} - pods.namespaces.keys())
    for name in unknown:
        say(f"namespace {name} is not in the files: it is assumed to have no labels")
    if unknown:
        say("hint: give the file of the Namespace too, or use a cluster: --kubernetes")
    return verdicts(pods, msgspec.structs.replace(InjectionSettings(), revision=revision))


def _of_files_there(written: WrittenPods, kubeconfig: Path | None, context: str | None) -> list[FileVerdict]:
    """Return what the webhooks of a cluster would decide about each pod template in `written`, which was read from
    files."""
    import asyncio

    from weft.cli.look.check_inject.files import FileVerdict
    from weft.cli.reach.cluster import client

    async def asked() -> list[FileVerdict]:
        async with client(kubeconfig, context) as cluster:
            return [
                FileVerdict(
                    each.object, each.where, verdict.webhook, verdict.revision, verdict.injected, verdict.reason
                )
                for each in written.templates
                for verdict in await _of_cluster(cluster, dict(each.pod), each.namespace)
            ]

    return asyncio.run(asked())


def _labels(text: str) -> dict[str, str]:
    pairs = [each.partition("=") for each in text.split(",") if each.strip()]
    if not pairs or any(not equals or not name.strip() for name, equals, _ in pairs):
        fail(f"`{text}` is not a list of labels", "for example: -l app=web,version=v1", code=2)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _tell(pod: Mapping[str, Any], verdicts: Iterable[InjectionVerdict]) -> None:
    """Print what the table of `verdicts` does not show: that several webhooks inject the pod, that the running pod has
    a proxy although a new pod would get none, or that it has none although a new pod would get one."""
    injecting = [each.webhook for each in verdicts if each.injected]
    if len(injecting) > 1:
        say(f"warning: several webhooks inject this pod: {', '.join(injecting)}\nhint: remove one revision's label")
    if not (pod.get("status") or {}).get("phase"):
        return
    from weft.cli.reach.kubernetes import has_proxy

    if has_proxy(dict(pod)) and not injecting:
        say(
            "the running pod has a proxy, but a new pod would get none: "
            "the proxy was injected when the pod was created\n"
            "hint: to remove the proxy, create the pod again: kubectl rollout restart, or delete the pod"
        )
    if injecting and not has_proxy(dict(pod)):
        say(
            "the running pod has no proxy, but a new pod would get one: "
            "no proxy was injected when the pod was created\n"
            "hint: to add a proxy, create the pod again: kubectl rollout restart, or delete the pod"
        )


def _print(verdicts: list[InjectionVerdict], output: str) -> None:
    from weft.cli.print.columns import lines

    if is_data(output):
        print_data(verdicts, output)
        return
    rows = [(each.webhook, each.revision, "✔" if each.injected else "✘", each.reason) for each in verdicts]
    for line in lines(COLUMNS, rows):
        click.echo(line)


def _print_of_files(verdicts: list[FileVerdict], output: str) -> None:
    from weft.cli.print.columns import lines

    if is_data(output):
        print_data(verdicts, output)
        return
    rows = [
        (each.object, each.where, each.webhook, each.revision, "✔" if each.injected else "✘", each.reason)
        for each in verdicts
    ]
    for line in lines(("OBJECT", "WHERE", *COLUMNS), rows):
        click.echo(line)
