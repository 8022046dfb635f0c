"""Proxies that read the same things. Config is computed per group, and every proxy of a group gets the same bytes."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from weft.model.names import Labels
from weft.model.workload import Workload


class ProxyKind(StrEnum):
    SIDECAR = "sidecar"
    GATEWAY = "router"  # Istio's word in the node id
    GRPC = "grpc"  # gRPC's own xDS client: no listeners to intercept with, one route per target


class Group(msgspec.Struct, frozen=True, cache_hash=True, order=True):
    kind: ProxyKind
    namespace: str
    labels: Labels = ()
    service_account: str = "default"
    locality: str = ""  # REGION/ZONE/SUBZONE; "": nobody knows

    def __str__(self) -> str:
        name = dict(self.labels).get("app", "")
        return f"{self.kind}:{self.namespace}/{name or self.service_account}"


def sidecar_group(workload: Workload) -> Group:
    """What the sidecars of a Workload's pods are."""
    return Group(ProxyKind.SIDECAR, workload.namespace, workload.labels, workload.service_account, workload.locality)
