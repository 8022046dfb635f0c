"""A group of proxies with equal inputs. Config is computed per group; every proxy of a group gets the same bytes."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from weft.model.instance import Instance
from weft.model.names import Labels
from weft.model.workload import Workload


class ProxyKind(StrEnum):
    SIDECAR = "sidecar"
    GATEWAY = "router"  # Istio's term in the node id
    GRPC = "grpc"  # gRPC's own xDS client: no listeners to intercept with, one route per target


class Group(msgspec.Struct, frozen=True, cache_hash=True, order=True):
    kind: ProxyKind
    namespace: str
    labels: Labels = ()
    service_account: str = "default"
    locality: str = ""  # REGION/ZONE/SUBZONE; "": unknown

    def __str__(self) -> str:
        name = dict(self.labels).get("app", "")
        return f"{self.kind}:{self.namespace}/{name or self.service_account}"


def group_of(owner: Workload | Instance) -> Group:
    """The group of one pod's proxy, if `owner` is an Instance; the group of the proxies of all its pods, if `owner`
    is a Workload."""
    kind = ProxyKind.GATEWAY if owner.gateway else ProxyKind.SIDECAR
    return Group(kind, owner.namespace, owner.labels, owner.service_account, owner.locality)
