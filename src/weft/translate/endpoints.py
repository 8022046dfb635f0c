"""The load assignments of a service port and of its subsets. They depend on the caller only where locality load
balancing is on; else they are built once for the whole mesh. The message of an endpoint is built once, however often
it is sent."""

from __future__ import annotations

from functools import lru_cache

from envoy.config.endpoint.v3.endpoint_components_pb2 import LocalityLbEndpoints
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment

from weft.model.destination_rule import DestinationRule, LocalitySetting, Subset, TrafficPolicy
from weft.model.endpoint import Endpoint
from weft.model.group import ProxyKind
from weft.model.locality import LocalityGroup, Whereabouts, parts_of, places, setting_for
from weft.model.names import selects
from weft.model.service import Protocol, Resolution, Service, ServicePort
from weft.translate import names
from weft.translate.built import Built, from_bytes
from weft.translate.policy import by_callers_address, effective, is_closed
from weft.translate.protos import socket_address
from weft.translate.provenance import keys
from weft.translate.tls import ENDPOINT_MATCH, ENDPOINT_METADATA

_MESSAGE = ClusterLoadAssignment.DESCRIPTOR.full_name
# The tag before each locality: field number and wire type.
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
    """For the service port itself and each subset; none where the proxy needs no endpoints, as Envoy for the original
    destination. gRPC's xDS client cannot use that, and gets the endpoints. `mesh`: the locality settings where the rule
    has none."""
    # A UDP port may have the number of a TCP port, and so the name of its cluster.
    if service.resolution is not Resolution.STATIC or port.protocol is Protocol.UDP:
        return ()
    subsets: tuple[Subset | None, ...] = (None, *(rule.subsets if rule else ()))
    sources = keys(service.origin, *(rule.origins if rule else ()))
    return tuple(
        from_bytes(
            _MESSAGE, name, _assigned(name, near(chosen, subset_endpoints(endpoints, subset), caller, mesh)), sources
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
    chosen: TrafficPolicy, endpoints: tuple[Endpoint, ...], caller: Whereabouts | None, mesh: LocalitySetting
) -> tuple[LocalityGroup, ...]:
    """The endpoints by locality, with the priorities that the effective policy gives them for this caller."""
    return places(endpoints, caller or Whereabouts(), setting_for(chosen, mesh))


def assignment(name: str, found: tuple[LocalityGroup, ...]) -> ClusterLoadAssignment:
    result: ClusterLoadAssignment = ClusterLoadAssignment.FromString(_assigned(name, found))
    return result


def _assigned(name: str, found: tuple[LocalityGroup, ...]) -> bytes:
    """The serialized assignment, joined from the bytes of the endpoints, so that thousands of them are not serialized
    again."""
    parts: list[bytes] = [ClusterLoadAssignment(cluster_name=name).SerializeToString()]
    for place in found:
        entry = LocalityLbEndpoints(priority=place.priority)
        entry.load_balancing_weight.value = place.weight
        # Always present, even when empty: gRPC's xDS client rejects endpoints without a locality.
        entry.locality.SetInParent()
        entry.locality.region, entry.locality.zone, entry.locality.sub_zone = parts_of(place.locality)
        body = b"".join((*map(_fragment, place.endpoints), entry.SerializeToString()))
        parts += (_ENDPOINTS, _varint(len(body)), body)
    return b"".join(parts)


def _varint(number: int) -> bytes:
    """A length in protobuf's encoding."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


@lru_cache(maxsize=65536)
def _fragment(endpoint: Endpoint) -> bytes:
    """One endpoint as a locality that contains nothing else: concatenated bytes are a locality with all of them."""
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
