"""Serves the streams of node agents: decides which pods an agent may serve, and with which groups' config.

Rule: the node of an agent follows from its pod-bound token and the watch of Pods, never from what the agent claims.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from hashlib import blake2b
from typing import Protocol

import msgspec

from weft.control.access import Principal
from weft.model.group import Group
from weft.xds.request import StreamRefused
from weft.xds.stream import NackedResource

log = logging.getLogger(__name__)


class Placements(Protocol):
    """The node and the group of each pod. On Kubernetes they come from the watch of Pods, not from agents or proxies.
    Pods are identified by their UID."""

    def pods_on(self, node: str) -> Mapping[str, Group] | None:
        """Return the group of each pod with a proxy on this node; None while the pods are not listed yet."""

    def node_of(self, pod_uid: str) -> str | None:
        """Return the node of a pod, with or without a proxy; None if there is no such pod, or it is not scheduled
        yet."""

    def subscribe(self, node: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed`, in the event loop, when the result of `pods_on(node)` changes. Returns the function that
        unsubscribes."""

    def uid_of(self, namespace: str, pod: str) -> str | None:
        """Return the UID of the current pod of this name, with or without a proxy; None if there is no such pod."""

    def group_of(self, pod_uid: str) -> Group | None:
        """Return the group of a pod, with or without a proxy; None if there is no such pod."""

    def follow(self, pod_uid: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed`, in the event loop, when the result of `group_of(pod_uid)` changes. Returns the function that
        unsubscribes."""


class RelayedGroups(Protocol):
    """The part of the control plane that `Relays` uses."""

    @property
    def loaded(self) -> bool: ...

    def hold(self, group: Group) -> None: ...

    def release(self, group: Group) -> None: ...

    def want(self, group: Group, names: Iterable[str], had: tuple[str, ...] = ()) -> None: ...

    def taken(self, group: Group, type_url: str) -> None: ...

    def on_nack(self, resource: NackedResource) -> None: ...


class Relays:
    """Implements `weft.xds.node_stream.NodeObserver` for the control plane: admits agents, and returns the pods of a
    node with their groups."""

    def __init__(self, groups: RelayedGroups, placements: Placements | None) -> None:
        self._groups, self._placements = groups, placements

    def admit(self, node: str, principal: object) -> str:
        if self._placements is None:
            raise StreamRefused(
                "this control plane knows no nodes: only a control plane on Kubernetes accepts node agents"
            )
        if not isinstance(principal, Principal) or not principal.is_agent:
            raise StreamRefused(f"{principal} is not an agent of this mesh")
        if not principal.pod_uid:
            raise StreamRefused(f"{principal} sends no token that is bound to its pod, so its node is unknown")
        actual = self._placements.node_of(principal.pod_uid)
        if actual is None:
            raise StreamRefused(f"the pod of {principal} is not known to this control plane; try again if it is new")
        if actual != node:
            raise StreamRefused(f"{principal} runs on {actual}, but claims to run on {node}")
        return actual

    def placements(self, node: str) -> Mapping[str, Hashable] | None:
        if self._placements is None or not self._groups.loaded:
            return None
        return self._placements.pods_on(node)

    def subscribe(self, node: str, changed: Callable[[], None]) -> Callable[[], None]:
        if self._placements is None:
            return lambda: None
        return self._placements.subscribe(node, changed)

    def name(self, group: Hashable) -> str:
        return blake2b(msgspec.json.encode(group), digest_size=8).hexdigest()

    def hold(self, group: Hashable) -> None:
        self._groups.hold(_known(group))

    def release(self, group: Hashable) -> None:
        self._groups.release(_known(group))

    def want(self, group: Hashable, names: Iterable[str], had: tuple[str, ...] = ()) -> None:
        try:
            self._groups.want(_known(group), names, had)
        except Exception:  # a defect in weft: the agent keeps its stream
            log.exception("cannot push the clusters that held calls of %s wait for", group)

    def taken(self, group: Hashable, type_url: str) -> None:
        self._groups.taken(_known(group), type_url)

    def on_nack(self, resource: NackedResource) -> None:
        self._groups.on_nack(resource)


def _known(group: Hashable) -> Group:
    assert isinstance(group, Group)  # noqa: S101 - `Placements` gives out nothing else
    return group
