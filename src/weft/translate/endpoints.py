"""Translates the endpoints of a service port and of its subsets to load assignments (EDS). They depend on the caller
only where locality load balancing is on; otherwise they are built once for the whole mesh. An endpoint is serialized
once, however many load assignments contain it."""

from __future__ import annotations

from functools import lru_cache

from envoy.config.endpoint.v3.endpoint_components_pb2 import LocalityLbEndpoints
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment

from weft.model.destination_rule import DestinationRule, LocalitySetting, Subset, TrafficPolicy
from weft.model.endpoint import Endpoint
from weft.model.group import ProxyKind
from weft.model.locality import LocalityGroup, Whereabouts, parts_of, places, setting_for, without_rule
from weft.model.names import selects
from weft.model.service import Protocol, Resolution, Service, ServicePort
from weft.translate import names
from weft.translate.built import Built, from_bytes
from weft.translate.policy import by_callers_address, effective, is_closed
from weft.translate.protos import socket_address
from weft.translate.provenance import keys
from weft.translate.tls import ENDPOINT_MATCH, ENDPOINT_METADATA

_MESSAGE = ClusterLoadAssignment.DESCRIPTOR.full_name
# The protobuf tag before each locality in a load assignment: field number and wire type.
_ENDPOINTS = bytes([ClusterLoadAssignment.DESCRIPTOR.fields_by_name["endpoints"].number << 3 | 2])

_ALL_ALIKE = LocalitySetting()


def assignments(
    service: Service,
    port: ServicePort,
    rule: DestinationRule | None,
    endpoints: tuple[Endpoint, ...],
    kind: ProxyKind = ProxyKind.SIDECAR,
    caller: Whereabouts | None = None,
    mesh: LocalitySetting = _ALL_ALIKE,
) -> tuple[Built, ...]:
    """Return the load assignments of a service port and of each subset. There is none where no endpoint may be called
    (`policy.is_closed`), or where Envoy calls the original destination. gRPC's xDS client (`kind`) cannot call an
    original destination, so it gets the endpoints in that case. `rule`: the effective DestinationRule, which declares
    the subsets. `kind`: the kind of the calling proxy. `caller`: the caller's locality; None if the order of endpoints
    does not depend on it. `mesh`: the mesh-wide locality settings, which apply where the rule and the service have
    none."""
    # A UDP port may have the same number as a TCP port, so its load assignment would have the name of the TCP port's.
    if service.resolution is not Resolution.STATIC or port.protocol is Protocol.UDP:
        return ()
    default = without_rule(service, mesh)
    subsets: tuple[Subset | None, ...] = (None, *(rule.subsets if rule else ()))
    sources = keys(*service.origins, *(rule.origins if rule else ()))
    return tuple(
        from_bytes(
            _MESSAGE, name, _assigned(name, near(chosen, subset_endpoints(endpoints, subset), caller, default)), sources
        )
        for subset in subsets
        for chosen in (effective(rule, port.number, subset),)
        if _asked_for(service, chosen, kind)
        for name in (names.outbound_cluster(service.host, port.number, subset.name if subset else ""),)
    )


def _asked_for(service: Service, chosen: TrafficPolicy, kind: ProxyKind) -> bool:
    if is_closed(chosen):
        return False
    return kind is ProxyKind.GRPC or not by_callers_address(service, chosen, kind)


def subset_endpoints(endpoints: tuple[Endpoint, ...], subset: Subset | None) -> tuple[Endpoint, ...]:
    if subset is None:
        return endpoints
    return tuple(endpoint for endpoint in endpoints if selects(subset.labels, endpoint.labels))


def near(
    chosen: TrafficPolicy, endpoints: tuple[Endpoint, ...], caller: Whereabouts | None, default: LocalitySetting
) -> tuple[LocalityGroup, ...]:
    """Return the endpoints grouped by locality, with the priorities that the effective policy `chosen` gives them for
    this caller. `caller`: the caller's locality; None if unknown. `default`: the mesh-wide locality settings, which
    apply if the policy has none."""
    return places(endpoints, caller or Whereabouts(), setting_for(chosen, default))


def assignment(name: str, localities: tuple[LocalityGroup, ...]) -> ClusterLoadAssignment:
    result: ClusterLoadAssignment = ClusterLoadAssignment.FromString(_assigned(name, localities))
    return result


def _assigned(name: str, localities: tuple[LocalityGroup, ...]) -> bytes:
    """Return the serialized load assignment. It is joined from the cached bytes of each endpoint, so that thousands of
    endpoints are not serialized again."""
    parts: list[bytes] = [ClusterLoadAssignment(cluster_name=name).SerializeToString()]
    for place in localities:
        entry = LocalityLbEndpoints(priority=place.priority)
        entry.load_balancing_weight.value = place.weight
        # The locality is present even if it is empty: gRPC's xDS client rejects endpoints without one.
        entry.locality.SetInParent()
        entry.locality.region, entry.locality.zone, entry.locality.sub_zone = parts_of(place.locality)
        body = b"".join((*map(_fragment, place.endpoints), entry.SerializeToString()))
        parts += (_ENDPOINTS, _varint(len(body)), body)
    return b"".join(parts)


def _varint(number: int) -> bytes:
    """Encode a length as a protobuf varint."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


@lru_cache(maxsize=65536)
def _fragment(endpoint: Endpoint) -> bytes:
    """Return one endpoint, serialized as a locality that contains nothing else. The concatenated bytes of several such
    fragments are a locality with all their endpoints."""
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
