"""Connection to the mesh of a cluster. The API server lists the pods and forwards requests to their Envoys, with the
permissions of the user who runs the command. The methods block, because a command sends its few requests one after
another."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from weft.base.ambiguous import AMBIGUOUS, Ambiguous
from weft.base.problem import Problem
from weft.cli.print.output import fail
from weft.cli.reach import control_pods
from weft.cli.reach.cluster import client
from weft.cli.reach.interface import PodProxy
from weft.cli.reach.names import KINDS, split, within
from weft.kube import port_forward, resource
from weft.kube.error import ApiError
from weft.model.proxy import ADMIN_PORT

T = TypeVar("T")

PROXY_CONTAINER = "istio-proxy"
_RESOURCES = {
    "deployment": resource.DEPLOYMENTS,
    "statefulset": resource.STATEFUL_SETS,
    "daemonset": resource.DAEMON_SETS,
    "replicaset": resource.REPLICA_SETS,
    "job": resource.JOBS,
    "service": resource.SERVICES,
}


class ClusterReach:
    runs_pods = False

    def __init__(
        self, kubeconfig: Path | None = None, context: str | None = None, system: str = "istio-system"
    ) -> None:
        self._system = system
        self._token = ""
        self._runner = asyncio.Runner()
        self._client = client(kubeconfig, context)

    def find(self, word: str, namespace: str = "") -> PodProxy:
        pods = self._run(self._pods(word, namespace))
        return _proxy(next(filter(_is_ready, pods), pods[0]))

    def find_all(self, word: str, namespace: str = "") -> list[PodProxy]:
        return [_proxy(pod) for pod in self._run(self._pods(word, namespace))]

    def find_labelled(self, selector: str, namespace: str = "") -> list[PodProxy]:
        within = namespace or self._client.connection.namespace
        listed = self._run(self._client.list(resource.PODS, dict, namespace=within, labels=selector)).items
        pods = [pod for pod in listed if _runs(pod) and has_proxy(pod)]
        if not pods:
            hint = f"see their labels: kubectl get pods -n {within} --show-labels"
            fail(f"no running pod with a proxy in namespace {within} has the labels `{selector}`", hint)
        return sorted(map(_proxy, pods), key=str)

    def admin(
        self, proxy: PodProxy, path: str, query: Mapping[str, str] | None = None, *, method: str = "GET"
    ) -> bytes:
        request = port_forward.ask(
            self._client, proxy.namespace, proxy.name, ADMIN_PORT, path, query=query, method=method
        )
        try:
            answer = self._run(request)
        except ApiError as error:
            if not error.forbidden:
                raise
            can = f"kubectl auth can-i create pods/portforward -n {proxy.namespace}"
            fail(
                f"you may not connect to the Envoy of pod {proxy}: {error.message or error}",
                f"this needs the permission to get and create pods/portforward in {proxy.namespace}; see: {can}",
            )
        if answer.status != 200:
            reason = answer.body[:200].decode(errors="replace").strip()
            hint = f"its log may show the cause: kubectl logs -n {proxy.namespace} {proxy.name} -c {PROXY_CONTAINER}"
            fail(f"{proxy}: Envoy answered {method} {path} with {answer.status}: {reason}", hint)
        return answer.body

    def names(self, kind: str = "pod", namespace: str = "") -> list[str]:
        """Return the names of a kind in `namespace`. If `namespace` is empty, the current namespace of the
        kubeconfig is used, because a whole cluster may have very many names."""
        if kind == "namespace":
            listed = self._run(self._client.list(resource.NAMESPACES, dict)).items
            return [each["metadata"]["name"] for each in listed]
        wanted = resource.PODS if kind == "pod" else _RESOURCES[KINDS[kind]]
        place = namespace or self._client.connection.namespace
        listed = self._run(self._client.list(wanted, dict, namespace=place)).items
        metadata = [each["metadata"] for each in listed if kind != "pod" or has_proxy(each)]
        if kind not in ("pod", "service"):
            return [each["name"] for each in metadata]
        return within(namespace, [(each["name"], each["namespace"]) for each in metadata])

    def ask(
        self, page: str, query: Mapping[str, str] | None = None, *, replica: str = "", question: bytes = b""
    ) -> bytes:
        name = replica or self._run(control_pods.replicas(self._client, self._system))[0]
        return self._run(self._ask(name, page, query, question))

    def ask_all(self, page: str, query: Mapping[str, str] | None = None) -> dict[str, bytes]:
        names = self._run(control_pods.replicas(self._client, self._system))
        return {name: self._run(self._ask(name, page, query)) for name in names}

    async def _ask(self, replica: str, page: str, query: Mapping[str, str] | None, question: bytes = b"") -> bytes:
        self._token = self._token or await control_pods.token(self._client, self._system)
        answer = await control_pods.debug_page(self._client, self._system, replica, self._token, page, query, question)
        if answer.status != 200:
            problem = _problem(answer.body)
            if problem is not None and answer.status == AMBIGUOUS:
                raise Ambiguous(problem)
            if problem is not None:
                fail(problem.what, problem.hint)
            reason = answer.body[:300].decode(errors="replace").strip()
            hint = f"its log may show the cause: kubectl logs -n {self._system} {replica}"
            fail(f"the control plane, {replica}, answered /debug/{page} with {answer.status}: {reason}", hint)
        return answer.body

    def close(self) -> None:
        self._run(self._client.close())
        self._runner.close()

    def _run(self, request: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(request)

    async def _pods(self, word: str, namespace: str) -> list[dict[str, Any]]:
        """Return the running pods with a proxy that `word` names. If there is none, the command ends. `word` and
        `namespace`: as for `find`."""
        kind, name, given = split(word, namespace)
        within = given or self._client.connection.namespace
        pods = await (self._of(kind, name, within) if kind not in ("", "pod") else self._named(kind, name, within))
        if pods is None:
            hint = f"list them: kubectl get pods -n {within}" + ("" if given else "; another namespace: -n NAMESPACE")
            fail(f"there is no {kind or 'pod or workload'} `{name}` in namespace {within}", hint)
        if not pods:
            fail(f"{word} has no pods in namespace {within}", f"see why: kubectl describe {kind} {name} -n {within}")
        running = list(filter(_runs, pods))
        if not running:
            fail(
                f"no pod of `{word}` is running",
                f"see why: kubectl describe pod {pods[0]['metadata']['name']} -n {within}",
            )
        meshed = [pod for pod in running if has_proxy(pod)]
        if not meshed:
            hint = f"is injection on? kubectl get namespace {within} -L istio-injection,istio.io/rev"
            fail(f"`{word}` has no proxy", hint)
        return meshed

    async def _named(self, kind: str, name: str, namespace: str) -> list[dict[str, Any]] | None:
        """Return the pod called `name`, or, unless `kind` is `pod`, the pods of the workload called `name`. None if
        there is no such pod or workload."""
        try:
            return [await self._client.get(resource.PODS, name, namespace=namespace)]
        except ApiError as error:
            if not error.not_found:
                raise
        if kind == "pod":
            return None
        for each in ("deployment", "statefulset", "daemonset"):
            if (pods := await self._of(each, name, namespace)) is not None:
                return pods
        return None

    async def _of(self, kind: str, name: str, namespace: str) -> list[dict[str, Any]] | None:
        try:
            owner = await self._client.get(_RESOURCES[kind], name, namespace=namespace)
        except ApiError as error:
            if error.not_found:
                return None
            raise
        labels = _selector(owner.get("spec", {}).get("selector") or {})
        if not labels:
            fail(f"{kind} {name} selects no pods", "name a pod instead: POD.NAMESPACE")
        listed = await self._client.list(resource.PODS, dict, namespace=namespace, labels=labels)
        return sorted(listed.items, key=lambda pod: str(pod["metadata"]["name"]))


def _problem(body: bytes) -> Problem | None:
    try:
        return msgspec.json.decode(body, type=Problem)
    except msgspec.DecodeError:
        return None


def _selector(selector: dict[str, Any]) -> str:
    """Return the selector of a workload or Service as text, in the form that the API server expects. A Service's
    selector is a plain map of labels; a workload's has `matchLabels` and `matchExpressions`."""
    if not {"matchLabels", "matchExpressions"} & selector.keys():
        return ",".join(f"{name}={value}" for name, value in selector.items())
    parts = [f"{name}={value}" for name, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        key, operator, values = each["key"], each["operator"], ",".join(each.get("values") or ())
        parts.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": str(key),
                "DoesNotExist": f"!{key}",
            }[operator]
        )
    return ",".join(parts)


def _proxy(pod: dict[str, Any]) -> PodProxy:
    return PodProxy(pod["metadata"]["name"], pod["metadata"]["namespace"])


def _runs(pod: dict[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def has_proxy(pod: dict[str, Any]) -> bool:
    """Return whether the pod has a sidecar, as a container or as a native sidecar among the init containers."""
    spec = pod.get("spec", {})
    return any(
        each.get("name") == PROXY_CONTAINER
        for each in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    )


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
