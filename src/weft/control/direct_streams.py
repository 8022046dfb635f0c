"""Proxies that call the control plane themselves, without an agent: which pod each is of, by what it has proved.

A token proves a pod. A certificate proves an account; who shows nothing else names its pod, and that must be one of the
account. Rule: what a proxy is served follows from its Pod, from its labels and from whether it is a gateway, and not
from what it tells. Only gRPC's own client, which any pod may have beside its proxy, says itself that it is one.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from weft.control.access import Principal
from weft.control.node_metadata import pod_of
from weft.control.relays import Placements
from weft.model.group import Group, ProxyKind
from weft.xds.request import NodeInfo, StreamRefused

MOST_STREAMS = 16  # of one pod


class Direct:
    def __init__(self, placements: Placements | None, restart: Callable[[int, str], None]) -> None:
        """`restart`: ends a stream, by its number and for this reason, so that its client comes again."""
        self._placements = placements
        self._restart = restart
        self._unfollow: dict[int, Callable[[], None]] = {}  # by stream
        self._pods: dict[int, str] = {}  # by stream, the pod's UID

    def join(self, stream_id: int, node: NodeInfo, claimed: Group, principal: object) -> Group:
        """The group of the caller's pod. Raises StreamRefused."""
        if self._placements is None:
            raise StreamRefused("this control plane knows no pods")
        if not isinstance(principal, Principal):
            raise StreamRefused(f"{principal} is nobody of this mesh")
        if principal.only_asks:
            raise StreamRefused(f"{principal} shows a token that is bound to no pod, and so is no proxy of the mesh")
        if claimed.namespace != principal.namespace:
            raise StreamRefused(f"{node.id} says it is {claimed}, and its caller is {principal}")
        named = pod_of(node.id, node.metadata)
        uid = principal.pod_uid or self._placements.uid_of(principal.namespace, named)
        group = self._placements.group_of(uid) if uid else None
        if uid is None or group is None:
            pod = principal.pod or named
            raise StreamRefused(
                f"pod {principal.namespace}/{pod} is not known here, yet or any more; try again if it is new"
            )
        if (group.namespace, group.service_account) != (principal.namespace, principal.service_account):
            raise StreamRefused(
                f"pod {group.namespace}/{named} is of {group.service_account}, and its caller is {principal}"
            )
        if sum(each == uid for each in self._pods.values()) >= MOST_STREAMS:
            raise StreamRefused(f"pod {group.namespace}/{principal.pod or named} has {MOST_STREAMS} streams already")
        if claimed.kind is not ProxyKind.GRPC and claimed.kind is not group.kind:
            pod = f"pod {group.namespace}/{principal.pod or named}"
            hint = "a gateway is one whose Pod was injected with the template `gateway`"
            raise StreamRefused(f"{node.id} says it is a {claimed.kind}, and {pod} is a {group.kind}: {hint}")
        self._pods[stream_id] = uid
        self._unfollow[stream_id] = self._placements.follow(
            uid, lambda: self._restart(stream_id, "its pod has other labels now, or is gone")
        )
        return msgspec.structs.replace(group, kind=claimed.kind) if claimed.kind is ProxyKind.GRPC else group

    def leave(self, stream_id: int) -> None:
        self._pods.pop(stream_id, None)
        unfollow = self._unfollow.pop(stream_id, None)
        if unfollow is not None:
            unfollow()
