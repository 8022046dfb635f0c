"""Finds the pod of a proxy that connects to the control plane directly, without an agent, by its credentials.

A token proves which pod the caller is. A certificate proves only a service account: the pod is then taken from the
proxy's node id, and must run as that account. Rule: the config that a proxy gets follows from its Pod (labels,
gateway or not), not from its node metadata. The only exception is a proxyless gRPC client, which any pod may run
beside its proxy: the client's metadata declares that it is one.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from weft.control.access import Principal
from weft.control.node_metadata import pod_of
from weft.control.relays import Placements
from weft.model.group import Group, ProxyKind
from weft.xds.request import NodeInfo, StreamRefused

MOST_STREAMS = 16  # streams per pod


class Direct:
    def __init__(self, placements: Placements | None, restart: Callable[[int, str], None]) -> None:
        """`placements`: the known pods; None: no proxy is accepted by its credentials. `restart` ends a stream, given
        its number and a reason, so that its client reconnects."""
        self._placements = placements
        self._restart = restart
        # Stream → the function that ends its subscription to the pod.
        self._unfollow: dict[int, Callable[[], None]] = {}
        self._pods: dict[int, str] = {}  # stream → UID of its pod

    def join(self, stream_id: int, node: NodeInfo, claimed: Group, principal: object) -> Group:
        """Return the group of the caller's pod. `claimed`: the group according to the node metadata that the proxy
        sends. `principal`: the result of authentication. Raises StreamRefused if the credentials and the node id do not
        identify a pod of the mesh, if they contradict each other, or if the pod has too many streams."""
        if self._placements is None:
            raise StreamRefused(
                "this control plane knows no pods: only a control plane on Kubernetes accepts proxies by their "
                "credentials"
            )
        if not isinstance(principal, Principal):
            raise StreamRefused(f"{principal} is not an account of this mesh")
        if principal.only_asks:
            raise StreamRefused(
                f"the token of {principal} is not bound to a pod, so the caller cannot be a proxy of the mesh"
            )
        if claimed.namespace != principal.namespace:
            raise StreamRefused(f"{node.id} claims to be {claimed}, but has the credentials of {principal}")
        named = pod_of(node.id, node.metadata)
        uid = principal.pod_uid or self._placements.uid_of(principal.namespace, named)
        group = self._placements.group_of(uid) if uid else None
        if uid is None or group is None:
            pod = principal.pod or named
            raise StreamRefused(
                f"pod {principal.namespace}/{pod} is not known to this control plane; try again if it is new"
            )
        if (group.namespace, group.service_account) != (principal.namespace, principal.service_account):
            raise StreamRefused(
                f"pod {group.namespace}/{named} has the account {group.service_account}, "
                f"but its proxy has the credentials of {principal}"
            )
        if sum(each == uid for each in self._pods.values()) >= MOST_STREAMS:
            raise StreamRefused(f"pod {group.namespace}/{principal.pod or named} has {MOST_STREAMS} streams already")
        if claimed.kind is not ProxyKind.GRPC and claimed.kind is not group.kind:
            pod = f"pod {group.namespace}/{principal.pod or named}"
            hint = "the Pod of a gateway must be injected with the template `gateway`"
            raise StreamRefused(f"{node.id} claims to be a {claimed.kind}, but {pod} is a {group.kind}: {hint}")
        self._pods[stream_id] = uid
        self._unfollow[stream_id] = self._placements.follow(
            uid, lambda: self._restart(stream_id, "the labels of the proxy's pod have changed, or the pod was deleted")
        )
        return msgspec.structs.replace(group, kind=claimed.kind) if claimed.kind is ProxyKind.GRPC else group

    def leave(self, stream_id: int) -> None:
        self._pods.pop(stream_id, None)
        unfollow = self._unfollow.pop(stream_id, None)
        if unfollow is not None:
            unfollow()
