"""The interface of every connection to a mesh: find proxies, and query their Envoys and the control plane. `local.py`,
`control.py` and `kubernetes.py` implement it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class PodProxy:
    """The Envoy of one pod."""

    def __init__(self, name: str, namespace: str) -> None:
        self.name, self.namespace = name, namespace

    def __str__(self) -> str:
        return f"{self.name}.{self.namespace}"


class MeshReach(Protocol):
    runs_pods: bool  # whether `weft up` runs the pods, so that weft ps, logs and status apply

    def find(self, word: str, namespace: str = "") -> PodProxy:
        """Return the proxy that `word` names: `POD`, `POD.NAMESPACE`, `deploy/NAME` or the name of a workload. For a
        workload, the proxy of one of its pods, preferably a ready one."""

    def find_all(self, word: str, namespace: str = "") -> list[PodProxy]:
        """Return the proxies of all pods that `word` names. `word` has the forms that `find` takes."""

    def find_labelled(self, selector: str, namespace: str = "") -> list[PodProxy]:
        """Return the proxies of all pods whose labels match `selector`, such as `app=web,version!=v2`."""

    def admin(
        self, proxy: PodProxy, path: str, query: Mapping[str, str] | None = None, *, method: str = "GET"
    ) -> bytes:
        """Send a request to the admin interface of the proxy's Envoy, and return the body of the response. `path` and
        `query`: those of the request's URL; None for no query."""

    def names(self, kind: str = "pod", namespace: str = "") -> list[str]:
        """Return the names of a kind, for shell completion. `kind` is `pod` (only pods with a proxy are listed),
        `service`, `namespace`, or a kind of workload such as `deploy`. With `namespace`, return only the names in that
        namespace, without the suffix `.NAMESPACE`."""

    def ask(
        self, page: str, query: Mapping[str, str] | None = None, *, replica: str = "", question: bytes = b""
    ) -> bytes:
        """Return the page /debug/PAGE of the control plane, from `replica` or, if that is empty, from the replica that
        has run longest. `question` is the body of the request, for data that is too long for `query`."""

    def ask_all(self, page: str, query: Mapping[str, str] | None = None) -> dict[str, bytes]:
        """Return the page /debug/PAGE of every replica, by the replica's name. A page about proxies needs all replicas,
        because each proxy is connected to only one. `query`: that of the request's URL; None for none."""

    def close(self) -> None: ...
