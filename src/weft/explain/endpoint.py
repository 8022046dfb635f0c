"""Computes which endpoints of a cluster may get a request, and the share of requests of each endpoint: by priority
and health first, then by weight."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.health_check_pb2 import HealthStatus
from envoy.config.endpoint.v3.endpoint_components_pb2 import LbEndpoint, LocalityLbEndpoints
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from google.protobuf.struct_pb2 import Struct

# Per cent, Envoy's default: a priority gets its full load while its healthy endpoints, times 1.4, cover it.
_OVERPROVISIONED = 140
_PANIC = 50.0  # per cent, Envoy's default: with fewer healthy endpoints, requests go to all of them, healthy or not
_MATCH = "envoy.transport_socket_match"


class EndpointShare(msgspec.Struct, frozen=True):
    """An address that a connection may go to, and its share of the requests (1.0: all of them). `marks`: the
    endpoint metadata by which the cluster selects the transport socket."""

    address: str
    port: int
    share: float = 1.0
    marks: tuple[tuple[str, str], ...] = ()
    locality: str = ""


def places(cluster: Cluster, assignment: ClusterLoadAssignment) -> tuple[EndpointShare, ...]:
    """The endpoints of the assignment with a share of requests above 0."""
    by_priority: dict[int, list[LocalityLbEndpoints]] = {}
    for locality in assignment.endpoints:
        by_priority.setdefault(locality.priority, []).append(locality)
    levels = [by_priority[priority] for priority in sorted(by_priority)]
    shares = _shares([_hosts(level) for level in levels], assignment)
    panic = _PANIC
    if cluster.common_lb_config.HasField("healthy_panic_threshold"):
        panic = cluster.common_lb_config.healthy_panic_threshold.value
    endpoints: list[EndpointShare] = []
    for level, share in zip(levels, shares, strict=True):
        if share > 0:
            endpoints += _spread(cluster, level, share, panic)
    return tuple(endpoints)


def waiting(assignment: ClusterLoadAssignment, endpoints: tuple[EndpointShare, ...]) -> tuple[int, tuple[str, ...]]:
    """The endpoints of the assignment that are used only for failover: their number, and their localities.
    `endpoints`: the endpoints that get requests now, which are not counted."""
    first = {(place.address, place.port) for place in endpoints}
    others = [
        (_locality(group), entry)
        for group in assignment.endpoints
        if group.priority
        for entry in group.lb_endpoints
        if (each := _place(entry, 0.0)) and (each.address, each.port) not in first
    ]
    return len(others), tuple(sorted({locality for locality, _ in others if locality}))


def _shares(levels: list[list[LbEndpoint]], assignment: ClusterLoadAssignment) -> list[float]:
    """The share of the load that each priority gets, between 0 and 1, in the order of `levels` (the endpoints of each
    priority). If all priorities together have too few healthy endpoints, their shares are scaled up so that they add up
    to 1; if no endpoint is healthy, the first priority gets all. `assignment`: has the overprovisioning factor."""
    factor = assignment.policy.overprovisioning_factor.value or _OVERPROVISIONED
    able = [min(100.0, factor * sum(map(_is_healthy, level)) / len(level)) if level else 0.0 for level in levels]
    total = min(100.0, sum(able))
    if not total:
        first = next((position for position, level in enumerate(levels) if level), -1)
        return [1.0 if position == first else 0.0 for position in range(len(levels))]
    left, shares = 1.0, []
    for each in able:
        taken = min(left, each / total)
        shares.append(taken)
        left -= taken
    return shares


def _spread(cluster: Cluster, level: list[LocalityLbEndpoints], share: float, panic: float) -> Iterable[EndpointShare]:
    everybody = _hosts(level)
    healthy = sum(map(_is_healthy, everybody))
    all_of_them = bool(everybody) and 100 * healthy / len(everybody) < panic
    by_locality = cluster.common_lb_config.HasField("locality_weighted_lb_config")
    places_of = {id(entry): _locality(each) for each in level for entry in each.lb_endpoints}
    groups = [list(each.lb_endpoints) for each in level] if by_locality else [everybody]
    weights = [each.load_balancing_weight.value for each in level] if by_locality else [1]
    groups = [[each for each in group if all_of_them or _is_healthy(each)] for group in groups]
    total = sum(weight for weight, group in zip(weights, groups, strict=True) if group)
    for weight, group in zip(weights, groups, strict=True) if total else ():
        inside = sum(map(_weight, group))
        for each in group:
            yield _place(each, share * weight / total * _weight(each) / inside, places_of.get(id(each), ""))


def _place(entry: LbEndpoint, share: float, locality: str = "") -> EndpointShare:
    metadata = entry.metadata.filter_metadata
    marks = _marks(metadata[_MATCH]) if _MATCH in metadata else ()
    address = entry.endpoint.address
    if address.HasField("pipe"):
        return EndpointShare(f"unix://{address.pipe.path}", 0, share, marks, locality)
    return EndpointShare(address.socket_address.address, address.socket_address.port_value, share, marks, locality)


def _locality(group: LocalityLbEndpoints) -> str:
    return "/".join((group.locality.region, group.locality.zone, group.locality.sub_zone)).rstrip("/")


def _marks(written: Struct) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value.string_value) for name, value in written.fields.items()))


def _hosts(level: list[LocalityLbEndpoints]) -> list[LbEndpoint]:
    return [each for locality in level for each in locality.lb_endpoints]


def _is_healthy(entry: LbEndpoint) -> bool:
    return entry.health_status in (HealthStatus.UNKNOWN, HealthStatus.HEALTHY, HealthStatus.DEGRADED)


def _weight(entry: LbEndpoint) -> int:
    return entry.load_balancing_weight.value or 1
