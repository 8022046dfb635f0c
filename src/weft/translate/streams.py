"""Builds the routes of TCP ports: the `tcp` and `tls` routes of a VirtualService, or a route to the service itself."""

from __future__ import annotations

from ipaddress import ip_network

import msgspec
from envoy.config.listener.v3.listener_components_pb2 import Filter, FilterChain, FilterChainMatch

from weft.model.destination_rule import DestinationRule, HashKey, TrafficPolicy
from weft.model.names import ObjectKey, Origin, host_covers
from weft.model.service import Protocol, Resolution, ServicePort
from weft.model.settings import Settings
from weft.model.virtual_service import Destination, L4Match, L4Route
from weft.translate import names, policy, tls
from weft.translate.actions import destination_cluster, destination_port, taking_part
from weft.translate.chains import bytes_to, chain
from weft.translate.dynamic_dns import resolve_server_name
from weft.translate.matches import applies
from weft.translate.provenance import keys
from weft.translate.view import ServiceView, offering_http


class StreamRoute(msgspec.Struct, frozen=True):
    """One route for the connections of a port: the server names (SNI) and address ranges that it matches (both empty:
    every connection), and its clusters with their weights. `first`: the first destination of the route. `sources`: the
    objects that the route is made from. `is_taken_for_http`: by default, mutual TLS to a destination of the route
    offers the ALPN of HTTP, and the server's proxy would expect HTTP; so connections of this route must offer the ALPN
    `istio` instead."""

    clusters: tuple[tuple[str, int], ...]
    first: Destination
    server_names: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    sources: tuple[ObjectKey, ...] = ()
    is_taken_for_http: bool = False  # the server's proxy would expect HTTP, so connections must offer the ALPN `istio`


def streams(view: ServiceView, port: ServicePort) -> tuple[StreamRoute, ...]:
    """Return the routes of a TCP port in matching order; the last one matches every connection of the port."""
    stream_routes: list[StreamRoute] = []
    taken: set[tuple[str, str]] = set()
    speaks_tls = port.protocol in (Protocol.TLS, Protocol.HTTPS)
    for routing in (*(view.inside if speaks_tls else ()), *view.routes[:1]):
        inside = routing in view.inside
        for route in routing.tls if speaks_tls and routing.tls else routing.tcp:
            for match in route.match or (L4Match(),):
                if inside:
                    match = _within(match, view.host)
                if not route.route or not applies(match, view.caller, port.number):
                    continue
                claimed = _claimed(match)
                if (inside and not match.sni_hosts) or not taken.isdisjoint(claimed):
                    continue  # Envoy rejects a listener with two chains for the same match; the first is kept
                taken |= claimed
                stream_routes.append(stream(view, port, route, match, routing.origin))
                if not match.sni_hosts and not match.destination_subnets:
                    return tuple(stream_routes)
    return (*stream_routes, own_stream(view, port))


def own_stream(view: ServiceView, port: ServicePort) -> StreamRoute:
    name = names.outbound_cluster(view.host, port.number)
    return StreamRoute(
        ((name, 1),),
        Destination(view.host, port=port.number),
        sources=_sources(view, Destination(view.host, port=port.number), port.number),
        is_taken_for_http=port.number in offering_http(view.service, view.rule),
    )


def filter_chain(stream: StreamRoute, view: ServiceView, port: ServicePort, settings: Settings) -> FilterChain:
    chosen = _policy(view, stream.first, port.number)
    hashing = chosen.load_balancer.consistent_hash if chosen.load_balancer else None
    result = chain(
        "",
        *((tls.offering(tls.BYTES),) if stream.is_taken_for_http else ()),
        *_resolved(stream, view, port),
        bytes_to(
            stream.clusters,
            settings,
            chosen.connection_pool,
            hash_source=hashing is not None and hashing.key is HashKey.SOURCE_IP,
            tunnel=chosen.tunnel,
        ),
    )
    if stream.server_names or stream.ranges:
        result.filter_chain_match.CopyFrom(matching(stream.server_names, stream.ranges))
    return result


def _resolved(stream: StreamRoute, view: ServiceView, port: ServicePort) -> tuple[Filter, ...]:
    """Return the filter that resolves the SNI of a connection by DNS. It is needed if the service is a wildcard with
    `resolution: DYNAMIC_DNS` and the route leads to this service itself, not to another host; else ()."""
    dynamic = view.service is not None and view.service.resolution is Resolution.DYNAMIC_DNS
    own = stream.first.host == view.host
    return (resolve_server_name(view.host, port.number),) if dynamic and own else ()


def matching(server_names: tuple[str, ...], ranges: tuple[str, ...]) -> FilterChainMatch:
    result = FilterChainMatch(server_names=server_names)
    for written in ranges:
        network = ip_network(written, strict=False)
        entry = result.prefix_ranges.add(address_prefix=str(network.network_address))
        entry.prefix_len.value = network.prefixlen
    return result


def _within(match: L4Match, wildcard: str) -> L4Match:
    """Return the match with only those of its SNI hosts that the `wildcard` host covers."""
    covered = tuple(name for name in match.sni_hosts if host_covers(wildcard, name))
    return msgspec.structs.replace(match, sni_hosts=covered)


def stream(view: ServiceView, port: ServicePort, route: L4Route, match: L4Match, origin: Origin | None) -> StreamRoute:
    """Return one `match` of the `tcp` or `tls` route `route` of a VirtualService, as a route for connections to a
    service port. `origin`: where the VirtualService is written."""
    parts = taking_part(route.route)
    closed = ((names.BLACK_HOLE, route.failing),) if route.failing else ()
    return StreamRoute(
        clusters=(
            *((destination_cluster(view, part.destination, port.number), max(part.weight, 1)) for part in parts),
            *closed,
        ),
        first=parts[0].destination,
        server_names=match.sni_hosts,
        ranges=match.destination_subnets,
        sources=_sources(view, parts[0].destination, port.number, origin),
        is_taken_for_http=any(_offers_http(view, part.destination, port.number) for part in parts),
    )


def _policy(view: ServiceView, destination: Destination, port: int) -> TrafficPolicy:
    """Return the effective traffic policy of a destination. For a destination on another host, the view contains the
    DestinationRule only if that rule has settings that routes need; without it, the result is the default policy."""
    rule = _rule(view, destination.host)
    subset = next((entry for entry in rule.subsets if entry.name == destination.subset), None) if rule else None
    return policy.effective(rule, destination_port(view, destination, port), subset)


def _rule(view: ServiceView, host: str) -> DestinationRule | None:
    target = view.target(host)
    return view.rule if host == view.host else (target.rule if target else None)


def _offers_http(view: ServiceView, destination: Destination, port: int) -> bool:
    target = view.target(destination.host)
    if destination.host == view.host:
        ports = offering_http(view.service, view.rule)
    else:
        ports = target.offering_http if target else ()
    return destination_port(view, destination, port) in ports


def _claimed(match: L4Match) -> set[tuple[str, str]]:
    ranges = [str(ip_network(written, strict=False)) for written in match.destination_subnets]
    return {(name.lower(), written) for name in match.sni_hosts or ("",) for written in ranges or ("",)}


def _sources(view: ServiceView, first: Destination, port: int, routed: Origin | None = None) -> tuple[ObjectKey, ...]:
    """Return the objects that affect a filter chain, and no others: a change of this list replaces the chain and drains
    its connections. `first`: the first destination of the route. `routed`: the origin of the route."""
    rule = _rule(view, first.host)
    tunneling = rule.origins if rule and _policy(view, first, port).tunnel else ()
    return keys(*(view.service.origins if view.service else ()), routed, *tunneling)
