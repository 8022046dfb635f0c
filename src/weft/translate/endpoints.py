"""Who answers: the load assignments of a service port and of its subsets. They do not depend on who asks, so they are
made once for the whole mesh, and an endpoint's own message is made once however often it is sent."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache

from envoy.config.endpoint.v3.endpoint_components_pb2 import LocalityLbEndpoints
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment

from weft.model.destination_rule import DestinationRule, Subset, TrafficPolicy
from weft.model.endpoint import Endpoint
from weft.model.group import ProxyKind
from weft.model.names import selects
from weft.model.service import Protocol, Resolution, Service, ServicePort
from weft.translate import names
from weft.translate.built import Built, from_bytes
from weft.translate.policy import by_callers_address, effective, is_closed
from weft.translate.protos import socket_address
from weft.translate.provenance import keys
from weft.translate.tls import ENDPOINT_MATCH, ENDPOINT_METADATA

_MESSAGE = ClusterLoadAssignment.DESCRIPTOR.full_name
# What stands before each locality: its field, and that a length follows.
_ENDPOINTS = bytes([ClusterLoadAssignment.DESCRIPTOR.fields_by_name["endpoints"].number << 3 | 2])


def assignments(
    service: Service,
    port: ServicePort,
    rule: DestinationRule | None,
    endpoints: tuple[Endpoint, ...],
    kind: ProxyKind = ProxyKind.SIDECAR,
) -> tuple[Built, ...]:
    """For the service port itself and each subset; none where the proxy finds the addresses by itself, as Envoy does
    where the caller's own address is used. gRPC's client cannot do that, and is told the endpoints."""
    # A UDP port may have the number of a TCP port, and so the name of its cluster.
    if service.resolution is not Resolution.STATIC or port.protocol is Protocol.UDP:
        return ()
    subsets: tuple[Subset | None, ...] = (None, *(rule.subsets if rule else ()))
    sources = keys(service.origin, *(rule.origins if rule else ()))
    return tuple(
        from_bytes(_MESSAGE, name, _assigned(name, subset_endpoints(endpoints, subset)), sources)
        for subset in subsets
        if _asked_for(service, effective(rule, port.number, subset), kind)
        for name in (names.outbound_cluster(service.host, port.number, subset.name if subset else ""),)
    )


def _asked_for(service: Service, chosen: TrafficPolicy, kind: ProxyKind) -> bool:
    if is_closed(chosen):
        return False
    return kind is ProxyKind.GRPC or not by_callers_address(service, chosen)


def subset_endpoints(endpoints: tuple[Endpoint, ...], subset: Subset | None) -> tuple[Endpoint, ...]:
    if subset is None:
        return endpoints
    return tuple(endpoint for endpoint in endpoints if selects(subset.labels, endpoint.labels))


def assignment(name: str, endpoints: tuple[Endpoint, ...]) -> ClusterLoadAssignment:
    result: ClusterLoadAssignment = ClusterLoadAssignment.FromString(_assigned(name, endpoints))
    return result


def _assigned(name: str, endpoints: tuple[Endpoint, ...]) -> bytes:
    """The serialized assignment, joined from the endpoints' own bytes: thousands of them are not parsed to be written
    again."""
    by_locality: dict[str, list[Endpoint]] = defaultdict(list)
    for endpoint in endpoints:
        by_locality[endpoint.locality].append(endpoint)
    parts: list[bytes] = [ClusterLoadAssignment(cluster_name=name).SerializeToString()]
    for locality, members in sorted(by_locality.items()):
        entry = LocalityLbEndpoints()
        entry.load_balancing_weight.value = sum(max(member.weight, 1) for member in members)
        # Always present, even when empty: gRPC's client refuses endpoints without a locality.
        entry.locality.SetInParent()
        region, zone, sub_zone = (*locality.split("/", 2), "", "", "")[:3]
        entry.locality.region, entry.locality.zone, entry.locality.sub_zone = region, zone, sub_zone
        body = b"".join((*map(_fragment, members), entry.SerializeToString()))
        parts += (_ENDPOINTS, _varint(len(body)), body)
    return b"".join(parts)


def _varint(number: int) -> bytes:
    """How protobuf writes a length."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


@lru_cache(maxsize=65536)
def _fragment(endpoint: Endpoint) -> bytes:
    """One endpoint as a locality that holds nothing else, so that joined bytes are a locality with all of them."""
    result = LocalityLbEndpoints()
    entry = result.lb_endpoints.add()
    entry.endpoint.address.CopyFrom(socket_address(endpoint.address, endpoint.port))
    for address in endpoint.extra_addresses:
        entry.endpoint.additional_addresses.add().address.CopyFrom(socket_address(address, endpoint.port))
    entry.load_balancing_weight.value = max(endpoint.weight, 1)
    if endpoint.tls:
        entry.metadata.filter_metadata[ENDPOINT_METADATA].update(ENDPOINT_MATCH)
    fragment: bytes = result.SerializeToString(deterministic=True)
    return fragment
