"""What every way to reach a mesh can do: find proxies, and ask their Envoys and the control plane. `local.py`,
`control.py` and `kubernetes.py` implement it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class PodProxy:
    """One pod's Envoy."""

    def __init__(self, name: str, namespace: str) -> None:
        self.name, self.namespace = name, namespace

    def __str__(self) -> str:
        return f"{self.name}.{self.namespace}"


class MeshReach(Protocol):
    def find(self, word: str, namespace: str = "") -> PodProxy:
        """`POD`, `POD.NAMESPACE`, `deploy/NAME`, or a workload's name: one of its pods, a ready one if there is one."""

    def find_all(self, word: str, namespace: str = "") -> list[PodProxy]:
        """The same, all pods of it."""

    def find_labelled(self, selector: str, namespace: str = "") -> list[PodProxy]:
        """All pods with labels that fit, as `app=web,version!=v2`."""

    def admin(
        self, proxy: PodProxy, path: str, query: Mapping[str, str] | None = None, *, method: str = "GET"
    ) -> bytes:
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
