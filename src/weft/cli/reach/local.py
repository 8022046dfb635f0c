"""Connection to a mesh that `weft up` runs on this machine, over the socket of its engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from weft.cli.print.output import fail
from weft.cli.reach.interface import PodProxy
from weft.cli.reach.names import service_names, within

if TYPE_CHECKING:
    from weft.local.status import PodStatus


class LocalReach:
    runs_pods = True

    def __init__(self, mesh: str) -> None:
        self.mesh = mesh

    def find(self, word: str, namespace: str = "") -> PodProxy:
        from weft.local.status import PodPhase

        pods = self._pods(word, namespace)
        best = next((pod for pod in pods if pod.phase is PodPhase.READY), pods[0])
        return PodProxy(best.name, best.namespace)

    def find_all(self, word: str, namespace: str = "") -> list[PodProxy]:
        return [PodProxy(pod.name, pod.namespace) for pod in self._pods(word, namespace)]

    def find_labelled(self, selector: str, namespace: str = "") -> list[PodProxy]:
        from weft.cli.reach.label_selector import requirements
        from weft.local.client import fetch_status

        wanted = requirements(selector)
        pods = [pod for pod in fetch_status(self.mesh).pods if namespace in ("", pod.namespace)]
        proxied = [pod for pod in pods if pod.sync.value != "-" and all(each.fits(pod.labels) for each in wanted)]
        if not proxied:
            fail(f"no pod with a proxy has the labels `{selector}`", "list the labels of pods: weft ps -o json")
        return [PodProxy(pod.name, pod.namespace) for pod in proxied]

    def admin(
        self, proxy: PodProxy, path: str, query: Mapping[str, str] | None = None, *, method: str = "GET"
    ) -> bytes:
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
        """Do nothing: each query has its own connection, closed after the response."""

    def _pods(self, word: str, namespace: str) -> list[PodStatus]:
        from weft.cli.reach.choose import choose_pods
        from weft.local.client import fetch_status

        pods = choose_pods(fetch_status(self.mesh), word, namespace)
        with_proxy = [pod for pod in pods if pod.sync.value != "-"]
        if not with_proxy:
            hint = 'its Workload has the annotation sidecar.istio.io/inject: "false", or its pods have ended: weft ps'
            fail(f"`{word}` has no proxy", hint)
        return with_proxy
