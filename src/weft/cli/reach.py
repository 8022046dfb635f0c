"""How a command reaches a mesh: the one that runs on this machine, or one of a cluster, or only a control plane. Who is
asked for comes in as a word; Envoy's own answers, and the control plane's, leave.

Rule: where both could be meant, the mesh of this machine is, unless a flag names a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import typer

from weft.cli import candidates
from weft.cli.output import fail

if TYPE_CHECKING:
    from weft.local.status import PodStatus

MESH = typer.Option(
    None, "--mesh", help="Which mesh of this machine, where several run.", autocompletion=candidates.meshes
)
NAMESPACE = typer.Option(
    "",
    "-n",
    "--namespace",
    help="Whose namespace, if the name does not say it.",
    autocompletion=candidates.namespaces,
)
ONLY_NAMESPACE = typer.Option(
    "",
    "-n",
    "--namespace",
    help="Only this namespace; all of them if none is given.",
    autocompletion=candidates.namespaces,
)
SYSTEM = typer.Option(
    "istio-system", "-i", "--istio-namespace", "--istioNamespace", help="Where the control plane of a cluster is."
)
KUBERNETES = typer.Option(False, "--kubernetes", help="A cluster's mesh, though one runs on this machine too.")

_LONGEST_IN_QUERY = 2_000  # bytes; letters of other alphabets become nine of them in a URL, of which 8 KB are read

# As kubectl abbreviates them. A mesh of this machine has only workloads and pods, whatever they are called.
KINDS = {
    "po": "pod",
    "pod": "pod",
    "pods": "pod",
    "deploy": "deployment",
    "deployment": "deployment",
    "deployments": "deployment",
    "sts": "statefulset",
    "statefulset": "statefulset",
    "statefulsets": "statefulset",
    "ds": "daemonset",
    "daemonset": "daemonset",
    "daemonsets": "daemonset",
    "rs": "replicaset",
    "replicaset": "replicaset",
    "replicasets": "replicaset",
    "job": "job",
    "jobs": "job",
    "svc": "service",
    "service": "service",
    "services": "service",
}


class Proxy:
    """One pod's Envoy."""

    def __init__(self, name: str, namespace: str) -> None:
        self.name, self.namespace = name, namespace

    def __str__(self) -> str:
        return f"{self.name}.{self.namespace}"


class Reach(Protocol):
    def find(self, word: str, namespace: str = "") -> Proxy:
        """`POD`, `POD.NAMESPACE`, `deploy/NAME`, or a workload's name: one of its pods, a ready one if there is one."""

    def find_all(self, word: str, namespace: str = "") -> list[Proxy]:
        """The same, all pods of it."""

    def find_labelled(self, selector: str, namespace: str = "") -> list[Proxy]:
        """All pods with labels that fit, as `app=web,version!=v2`."""

    def admin(self, proxy: Proxy, path: str, query: Mapping[str, str] | None = None, *, method: str = "GET") -> bytes:
        """Envoy's own answer."""

    def names(self, kind: str = "pod", namespace: str = "") -> list[str]:
        """What somebody could type, for a shell to complete it: pods that have a proxy, deployments (or what else makes
        pods), services, namespaces. With a namespace: of this one, and without its name."""

    def ask(
        self, page: str, query: Mapping[str, str] | None = None, *, replica: str = "", question: bytes = b""
    ) -> bytes:
        """What the control plane says under /debug/PAGE: this replica of it, or any. `question`: if it is too long for
        the query."""

    def ask_all(self, page: str, query: Mapping[str, str] | None = None) -> dict[str, bytes]:
        """What each replica says, by its name: a proxy is connected to one of them."""

    def close(self) -> None: ...


def reach(
    mesh: str | None = None,
    *,
    kubernetes: bool = False,
    kubeconfig: Path | None = None,
    context: str | None = None,
    system: str = "istio-system",
    or_files: str = "",
) -> Reach:
    """Close it when nothing more is to be asked. `system`: where a cluster's control plane is. `or_files`: how whoever
    asks is asked about files."""
    meant = which(mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, or_files=or_files)
    if isinstance(meant, Path):
        from weft.cli.reach_control import Control

        return Control(meant)
    if meant is not None:
        return Local(meant)
    from weft.cli.reach_kubernetes import Kubernetes

    return Kubernetes(kubeconfig, context, system)


def which(
    mesh: str | None, *, kubernetes: bool, kubeconfig: Path | None, context: str | None, or_files: str = ""
) -> str | Path | None:
    """Who is meant: a mesh of this machine, by its name, a `weft control`, by its place, or (None) a cluster."""
    refuse_two(mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context)
    if kubernetes or kubeconfig or context:
        return None
    from weft.cli.choose import choose_mesh, running_meshes

    if (place := _control_place(mesh)) is not None:
        return place
    if mesh is None and not running_meshes() and _has_cluster():
        return None
    return choose_mesh(mesh, or_cluster=True, or_files=or_files)


def refuse_two(mesh: str | None, *, kubernetes: bool, kubeconfig: Path | None, context: str | None) -> None:
    """A mesh of this machine and a cluster at once."""
    if mesh is not None and (kubernetes or kubeconfig or context):
        fail("--mesh is of this machine, and another flag names a cluster", "leave one of them out", code=2)


def _control_place(mesh: str | None) -> Path | None:
    """Where the `weft control` is asked that is meant: by its path, or because nothing else runs here."""
    from weft.cli.choose import running_meshes
    from weft.cli.control_place import is_place, running_place

    if mesh is not None:
        return Path(mesh) if is_place(mesh) else None
    return None if running_meshes() else running_place()


def answered(
    page: str,
    question: Mapping[str, Any] | None = None,
    *,
    mesh: str | None,
    kubernetes: bool,
    kubeconfig: Path | None,
    context: str | None,
    system: str,
    or_files: str = "",
) -> Any:
    """What a control plane says on a page of its own (`weft.inspect.own_pages`): one question, one answer."""
    import msgspec

    reached = reach(
        mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, system=system, or_files=or_files
    )
    try:
        asked = b"" if question is None else msgspec.json.encode(question)
        if len(asked) > _LONGEST_IN_QUERY:
            return msgspec.json.decode(reached.ask(page, question=asked))
        return msgspec.json.decode(reached.ask(page, {"question": asked.decode()} if asked else {}))
    finally:
        reached.close()


def within(namespace: str, names: Iterable[tuple[str, str]]) -> list[str]:
    """NAME.NAMESPACE; or those of one namespace, by their names alone."""
    if namespace:
        return [name for name, place in names if place == namespace]
    return [f"{name}.{place}" for name, place in names]


def service_names(page: bytes, namespace: str) -> list[str]:
    """Out of the page `registryz`, as `within`."""
    import msgspec

    known = [each["Attributes"] for each in msgspec.json.decode(page)]
    return within(namespace, [(each["Name"], each["Namespace"]) for each in known])


class Local:
    def __init__(self, mesh: str) -> None:
        self.mesh = mesh

    def find(self, word: str, namespace: str = "") -> Proxy:
        from weft.local.status import PodPhase

        pods = self._pods(word, namespace)
        best = next((pod for pod in pods if pod.phase is PodPhase.READY), pods[0])
        return Proxy(best.name, best.namespace)

    def find_all(self, word: str, namespace: str = "") -> list[Proxy]:
        return [Proxy(pod.name, pod.namespace) for pod in self._pods(word, namespace)]

    def find_labelled(self, selector: str, namespace: str = "") -> list[Proxy]:
        from weft.cli.selector import requirements
        from weft.local.client import fetch_status

        wanted = requirements(selector)
        pods = [pod for pod in fetch_status(self.mesh).pods if namespace in ("", pod.namespace)]
        found = [pod for pod in pods if pod.sync.value != "-" and all(each.fits(pod.labels) for each in wanted)]
        if not found:
            fail(f"no pod with a proxy has labels as `{selector}`", "their labels: weft ps -o json")
        return [Proxy(pod.name, pod.namespace) for pod in found]

    def admin(self, proxy: Proxy, path: str, query: Mapping[str, str] | None = None, *, method: str = "GET") -> bytes:
        from weft.local.client import fetch_admin

        return fetch_admin(self.mesh, f"{proxy.namespace}/{proxy.name}", path, dict(query or {}), method=method)

    def names(self, kind: str = "pod", namespace: str = "") -> list[str]:
        from weft.local.client import fetch_status

        if kind == "service":
            return service_names(self.ask("registryz"), namespace)
        pods = [pod for pod in fetch_status(self.mesh).pods if pod.sync.value != "-"]
        if kind == "namespace":
            return sorted({pod.namespace for pod in pods})
        workloads = sorted({pod.workload for pod in pods if namespace in ("", pod.namespace)})
        if kind != "pod":
            return workloads
        return [*workloads, *within(namespace, [(pod.name, pod.namespace) for pod in pods])]

    def ask(
        self, page: str, query: Mapping[str, str] | None = None, *, replica: str = "", question: bytes = b""
    ) -> bytes:
        from weft.local.client import fetch_debug

        return fetch_debug(self.mesh, page, dict(query or {}), question)

    def ask_all(self, page: str, query: Mapping[str, str] | None = None) -> dict[str, bytes]:
        return {self.mesh: self.ask(page, query)}

    def close(self) -> None:
        """Each question is a connection of its own."""

    def _pods(self, word: str, namespace: str) -> list[PodStatus]:
        from weft.cli.choose import choose_pods
        from weft.local.client import fetch_status

        status = fetch_status(self.mesh)
        kind, name, namespace = split(word, namespace, known={pod.namespace for pod in status.pods})
        if kind == "service":
            fail(f"`{word}` is no workload", "name one of its pods or workloads: weft ps")
        pods = choose_pods(status, f"{namespace}/{name}" if namespace else name)
        with_proxy = [pod for pod in pods if pod.sync.value != "-"]
        if not with_proxy:
            fail(f"`{word}` has no proxy", "its Workload says inject: false, or it has ended: weft ps -o wide")
        return with_proxy


def split(word: str, namespace: str, *, known: set[str] | None = None) -> tuple[str, str, str]:
    """Kind (or nothing), name and namespace of what somebody typed. `known`: what is certainly a namespace; a name may
    have dots of its own."""
    before, slash, name = word.rpartition("/")
    kind = KINDS.get(before.lower(), "") if slash else ""
    if slash and not kind:
        if known is None or before not in known:
            kinds = "deploy, sts, ds, rs, job, svc, pod"
            fail(f"`{word}`: there is no kind `{before}`", f"one of {kinds}, such as deploy/{name}", code=2)
        return "", name, before
    first, dot, last = name.rpartition(".")
    if dot and (known is None or last in known):
        if namespace and namespace != last:
            fail(f"two namespaces are named: {last} and {namespace}", "leave one of them out", code=2)
        return kind, first, last
    return kind, name, namespace


def _has_cluster() -> bool:
    """Whether somebody has said how to reach one."""
    import os

    return bool(os.environ.get("KUBECONFIG")) or (Path.home() / ".kube" / "config").exists()
