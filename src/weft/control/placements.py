"""Which pod is on which node, and of which group: what the control plane must know of a cluster to serve its agents.

On Kubernetes the watch of Pods answers; agents and proxies are not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from weft.model.group import Group


class Placements(Protocol):
    """Pods are named by their UID."""

    def pods_on(self, node: str) -> Mapping[str, Group] | None:
        """The group of each meshed pod on this node; None while the pods are not listed yet."""

    def node_of(self, pod_uid: str) -> str | None:
        """Where any pod is, meshed or not; None: there is no such pod, or it has no node yet."""

    def subscribe(self, node: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Be told, in the event loop, when what `pods_on` says of the node is another. Returns what ends it."""
