"""Computes the group of a proxy from the xDS node that it sends on its stream. Istio's node ids and metadata are
supported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.model.group import Group, ProxyKind
from weft.model.names import labels_of

_MOST_LABELS = 128
_LONGEST_LOCALITY = 253


class UnknownProxy(ValueError):
    """The xDS node is incomplete, or is not the node of a proxy of the mesh."""


def group_of(node_id: str, metadata: Mapping[str, Any], locality: str = "") -> Group:
    """Return the group of the proxy with this node id, such as
    `sidecar~10.244.0.7~payments-v1-0.shop~shop.svc.cluster.local`, and this node metadata. `locality`:
    REGION/ZONE/SUBZONE, as the proxy sends it; "" if unknown. Raises UnknownProxy."""
    parts = node_id.split("~")
    if len(parts) != 4:
        raise UnknownProxy(f"node id {node_id[:200]!r} is not KIND~ADDRESS~NAME.NAMESPACE~DOMAIN")
    kind, _, name, domain = parts
    namespace = metadata.get("NAMESPACE") or name.rpartition(".")[2] or domain.split(".")[0]
    labels = metadata.get("LABELS") or {}
    if not isinstance(namespace, str) or not namespace or not isinstance(labels, Mapping) or len(labels) > _MOST_LABELS:
        raise UnknownProxy(f"node {node_id[:200]!r} has no usable NAMESPACE or LABELS in its metadata")
    if metadata.get("GENERATOR") == "grpc":
        kind = ProxyKind.GRPC
    if kind not in tuple(ProxyKind):
        what = "this control plane serves sidecars, gateways (router) and grpc clients"
        raise UnknownProxy(f"node {node_id[:200]!r} is a {kind[:40]!r}; {what}")
    return Group(
        kind=ProxyKind(kind),
        namespace=namespace,
        labels=labels_of({str(key): str(value) for key, value in labels.items()}),
        service_account=str(metadata.get("SERVICE_ACCOUNT") or "default"),
        locality=locality[:_LONGEST_LOCALITY],
    )


def pod_of(node_id: str, metadata: Mapping[str, Any]) -> str:
    """Return the name of the proxy's pod, as the proxy's node id or metadata states it (it is not verified here)."""
    return str(metadata.get("POD_NAME") or node_id.split("~")[2].rpartition(".")[0])
