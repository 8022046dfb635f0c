"""Selects the endpoint to which a cluster would send a request, from the cluster's type and its endpoints. Where Envoy
selects at random, this module calls `Walk.choose`, so that each candidate becomes an outcome of the explanation.

Endpoints that no later decision can distinguish are one choice: a thousand replicas of a workload do not make a
thousand outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.extensions.clusters.common.dns.v3.dns_pb2 import DnsLookupFamily
from envoy.extensions.clusters.dns.v3.dns_cluster_pb2 import DnsCluster
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions
from google.protobuf.message import Message

from weft.explain.decision import DecisionStage, sources_of
from weft.explain.endpoint import EndpointShare, places, waiting
from weft.explain.listener import IncomingConnection, is_address
from weft.explain.request import Speaks
from weft.explain.walk import Walk
from weft.explain.world import EnvoyResources, ExplainedWorkload, World

Weighted = TypeVar("Weighted", bound=Message)

_MOST_NAMED = 4
_BY_CALLED_NAME = "envoy.clusters.dynamic_forward_proxy"
_HTTP_OPTIONS = HttpProtocolOptions.DESCRIPTOR.full_name


class ChosenEndpoint(msgspec.Struct, frozen=True):
    cluster: Cluster
    place: EndpointShare
    workload: ExplainedWorkload | None  # None: no workload of the mesh has the address


class NoTarget(msgspec.Struct, frozen=True):
    why: str
    flags: str
    detail: str


def find(
    walk: Walk,
    resources: EnvoyResources,
    name: str,
    connection: IncomingConnection,
    caller: ExplainedWorkload,
    world: World,
    host: str = "",
) -> ChosenEndpoint | NoTarget:
    """Returns the endpoint to which the cluster `name` sends a request or connection, and the workload at this
    endpoint. If there is no such cluster, or no endpoint that can be called, returns a NoTarget with the reason and
    Envoy's response flags. `resources`: those of the caller's proxy. `connection`: the connection that the proxy
    forwards; its destination counts for a cluster that forwards to the original destination. `host`: the authority of
    an HTTP request, "" for TCP; it counts for a cluster that resolves the called name."""
    cluster = resources.clusters.get(name)
    walk.cluster = name
    if cluster is None:
        walk.tell(DecisionStage.CLUSTER, f"there is no cluster {name}")
        return NoTarget(f"there is no cluster {name}", "NC", "cluster_not_found")
    sources = sources_of(cluster.metadata)
    if cluster.type == Cluster.ORIGINAL_DST:
        port = cluster.original_dst_lb_config.upstream_port_override.value or connection.port
        place = EndpointShare(connection.address, port)
        walk.tell(DecisionStage.CLUSTER, f"{name}: to the original destination, {_written(place)}", sources, about=name)
        return ChosenEndpoint(cluster, place, _at(world, place))
    if cluster.cluster_type.name == _BY_CALLED_NAME:
        called, port = _called(host, connection, secure=cluster.HasField("transport_socket"))
        what = f"{name}: the proxy resolves {called} by DNS and calls its port {port}"
        walk.tell(DecisionStage.CLUSTER, what, sources, about=name)
        addresses = world.resolve(called, caller, by_proxy=True)
        if not addresses:
            return NoTarget(f"{called} cannot be resolved", "UH", "no_healthy_upstream")
        place = EndpointShare(next((each for each in addresses if ":" not in each), addresses[0]), port)
        return ChosenEndpoint(cluster, place, _at(world, place))
    endpoints = _places(resources, cluster, caller, world)
    if not endpoints:
        if why := world.uncalled(caller, name):
            walk.tell(DecisionStage.CLUSTER, f"{name}: no endpoint can be called, because {why}", sources, about=name)
            return NoTarget(f"no endpoint of {name} can be called: {why}", "UH", "no_healthy_upstream")
        walk.tell(DecisionStage.CLUSTER, f"{name} has no healthy endpoint", sources, about=name)
        return NoTarget(f"{name} has no healthy endpoint", "UH", "no_healthy_upstream")
    groups: dict[object, list[tuple[EndpointShare, ExplainedWorkload | None]]] = {}
    for place in endpoints:
        workload = _at(world, place)
        groups.setdefault((_alike(workload, place), place.port, place.marks), []).append((place, workload))
    chosen = walk.choose([(sum(place.share for place, _ in group), group) for group in groups.values()])
    walk.tell(
        DecisionStage.ENDPOINT,
        f"{name}: {_odds(endpoints)}{_how(cluster, endpoints, _assignment(resources, cluster))}",
        sources,
    )
    place, workload = chosen[0]
    walk.endpoint = _written(place)
    walk.endpoints = tuple((_written(each), each.share) for each in endpoints)
    return ChosenEndpoint(cluster, place, workload)


def _called(host: str, connection: IncomingConnection, *, secure: bool) -> tuple[str, int]:
    """The name and the port that a dynamic forward proxy calls. For HTTP they are those of the authority (`host`);
    without a port there, 443 if the cluster uses TLS (`secure`), else 80. For TCP (`host` is empty) they are the SNI
    and the called port."""
    if not host:
        return connection.server_name, connection.port
    name, colon, port = host.rpartition(":")
    return (name, int(port)) if colon and port.isdecimal() else (host, 443 if secure else 80)


def behind(walk: Walk, world: World, address: str, port: int) -> EndpointShare | None:
    """Returns the endpoint of a connection that no proxy forwards: `address` itself, or, if it is the address of a
    service, one of the service's endpoints. Returns None if that service has no endpoints."""
    sent = world.behind(address, port) if world.at(address) is None else None
    if sent is None:
        return EndpointShare(address, port)
    endpoints = tuple(EndpointShare(*each) for each in sent)
    where = _written(EndpointShare(address, port))
    if not endpoints:
        walk.tell(DecisionStage.ENDPOINT, f"{where} is the address of a service without endpoints")
        return None
    groups: dict[object, list[EndpointShare]] = {}
    for place in endpoints:
        workload = _at(world, place)
        groups.setdefault((_alike(workload, place), place.port), []).append(place)
    chosen = walk.choose([(len(group), group) for group in groups.values()])
    walk.tell(
        DecisionStage.ENDPOINT, f"{where} is a service address, which the network itself forwards to {_odds(endpoints)}"
    )
    return chosen[0]


def by_weight(walk: Walk, parts: Iterable[Weighted], weight_of: Callable[[Weighted], int]) -> tuple[Weighted, int]:
    """Chooses one of several weighted clusters (`parts`) at random. Returns the chosen cluster and its weight. Entries
    that differ only in their weight are one choice, with the sum of their weights. `weight_of`: returns the weight of
    an entry."""
    alike: dict[bytes, list[Weighted]] = {}
    for part in parts:
        other = type(part)()
        other.CopyFrom(part)
        other.ClearField("weight")
        alike.setdefault(other.SerializeToString(deterministic=True), []).append(part)
    chosen = walk.choose([(sum(map(weight_of, group)), group) for group in alike.values()])
    return chosen[0], sum(map(weight_of, chosen))


def speaks_http2(resources: EnvoyResources, cluster: Cluster, called: Speaks) -> bool:
    options = _http_options(resources, cluster)
    if options is None:
        return False
    if options.HasField("use_downstream_protocol_config"):
        return called is Speaks.HTTP2
    return bool(options.explicit_http_config.HasField("http2_protocol_options"))


def passes_on(resources: EnvoyResources, cluster: Cluster) -> bool:
    """Whether the cluster sends each request upstream in the HTTP version of the downstream request."""
    options = _http_options(resources, cluster)
    return options is not None and options.HasField("use_downstream_protocol_config")


def _http_options(resources: EnvoyResources, cluster: Cluster) -> HttpProtocolOptions | None:
    if _HTTP_OPTIONS not in cluster.typed_extension_protocol_options:
        return None
    return resources.opened(cluster.typed_extension_protocol_options[_HTTP_OPTIONS], HttpProtocolOptions)


def _places(
    resources: EnvoyResources, cluster: Cluster, caller: ExplainedWorkload, world: World
) -> tuple[EndpointShare, ...]:
    key = ("places", cluster.name)
    endpoints: tuple[EndpointShare, ...] | None = resources.kept.get(key)
    if endpoints is None:
        endpoints = resources.kept[key] = places(cluster, _assignment(resources, cluster))
    if all(is_address(place.address) or not place.port for place in endpoints):
        return endpoints
    resolved: list[EndpointShare] = []
    for place in endpoints:
        addresses = (
            (place.address,) if is_address(place.address) else world.resolve(place.address, caller, by_proxy=True)
        )
        addresses = _preferred(resources, cluster, addresses)
        share = place.share / len(addresses) if addresses else 0.0
        resolved += (msgspec.structs.replace(place, address=address, share=share) for address in addresses)
    return tuple(resolved)


def _preferred(resources: EnvoyResources, cluster: Cluster, addresses: tuple[str, ...]) -> tuple[str, ...]:
    """The addresses of the IP family that the cluster prefers; all addresses if none is of that family."""
    looked_up = resources.opened(cluster.cluster_type.typed_config, DnsCluster)
    if looked_up is None or looked_up.dns_lookup_family != DnsLookupFamily.V4_PREFERRED:
        return addresses
    return tuple(each for each in addresses if ":" not in each) or addresses


def _assignment(resources: EnvoyResources, cluster: Cluster) -> ClusterLoadAssignment:
    if cluster.type != Cluster.EDS or cluster.HasField("cluster_type"):
        return cluster.load_assignment
    name = cluster.eds_cluster_config.service_name or cluster.name
    return resources.endpoints.get(name) or ClusterLoadAssignment()


def _alike(workload: ExplainedWorkload | None, place: EndpointShare) -> object:
    return (id(workload.resources), workload.identity, workload.ports) if workload else place.address


def _at(world: World, place: EndpointShare) -> ExplainedWorkload | None:
    return world.at(place.address) if place.port else None


def _how(cluster: Cluster, endpoints: tuple[EndpointShare, ...], assignment: ClusterLoadAssignment) -> str:
    """A note on how one of `endpoints` is chosen, in addition to their shares: that the cluster uses consistent
    hashing, and which endpoints of the assignment are used only for failover. "" if neither applies."""
    note = ""
    if len(endpoints) > 1 and cluster.lb_policy in (Cluster.RING_HASH, Cluster.MAGLEV):
        note += "; consistent hashing: requests with the same hash key go to the same endpoint"
    count, where = waiting(assignment, endpoints)
    if count:
        near = sorted({place.locality for place in endpoints if place.locality})
        note += f"; these are the closest ({', '.join(near)})" if near else ""
        elsewhere = f" in {', '.join(where)}" if where else ""
        note += f"; {count} more{elsewhere} for failover"
    return note


def _odds(endpoints: tuple[EndpointShare, ...]) -> str:
    total = sum(place.share for place in endpoints)
    listed = [f"{_written(place)} {100 * place.share / total:.3g} %" for place in endpoints[:_MOST_NAMED]]
    more = f" and {len(endpoints) - _MOST_NAMED} more" if len(endpoints) > _MOST_NAMED else ""
    return f"one of {len(endpoints)}: {', '.join(listed)}{more}" if len(endpoints) > 1 else _written(endpoints[0])


def _written(place: EndpointShare) -> str:
    if not place.port:
        return place.address
    return f"[{place.address}]:{place.port}" if ":" in place.address else f"{place.address}:{place.port}"
