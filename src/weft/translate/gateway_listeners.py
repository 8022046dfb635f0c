"""Builds the listeners of a gateway: one bound listener for each port that it serves. TLS servers share a port by
server name (SNI); a connection with any other SNI is closed.

All filter chains have the same guards, except that names in unverified client certificates match no policy. If the
certificate of a server is missing, connections for its server names are closed: no other server may serve these names.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_network

from envoy.config.core.v3.address_pb2 import CidrRange
from envoy.config.core.v3.base_pb2 import TrafficDirection
from envoy.config.listener.v3.listener_components_pb2 import Filter, FilterChain, ListenerFilter
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.listener.proxy_protocol.v3.proxy_protocol_pb2 import ProxyProtocol
from google.protobuf.duration_pb2 import Duration

from weft.model.edge import narrower
from weft.model.proxy import published_socket
from weft.model.service import Protocol
from weft.model.virtual_service import L4Match
from weft.translate import gateway_tls, names
from weft.translate.access_log import listener_logs
from weft.translate.built import Built, build
from weft.translate.chains import bytes_to, chain, http_at_gateway, tls_inspector
from weft.translate.clusters import EDGE_BUFFER
from weft.translate.guards import Guards, guards_of
from weft.translate.listeners import on_both_families
from weft.translate.matches import applies
from weft.translate.protos import packed, socket_address
from weft.translate.provenance import keys, of_objects
from weft.translate.rbac import Connections
from weft.translate.streams import filter_chain, matching, stream
from weft.translate.view import GroupView, ServerView

_HANDSHAKE = Duration(seconds=15)
_EVERYWHERE = "0.0.0.0"

_Network = IPv4Network | IPv6Network


def listeners(view: GroupView) -> tuple[Built, ...]:
    doors: dict[tuple[str, int], list[ServerView]] = {}
    for served in view.servers:
        doors.setdefault(served.bound.door, []).append(served)
    built: list[Built] = []
    for (bind, port), servers in doors.items():
        name = names.listener(bind or _EVERYWHERE, port)
        result = Listener(name=name)
        if bind:
            result.address.CopyFrom(socket_address(bind, port))
        else:
            on_both_families(result, port)
        built += _filled(result, servers, view)
        if port in view.published and not bind:
            built += _filled(_published(port), servers, view, published=port)
    return tuple(built)


def _published(port: int) -> Listener:
    """Return the listener on the Unix socket of a published port: the machine's own port forwards connections there,
    each with a PROXY header. Only this listener trusts the client address in that header."""
    result = Listener(name=names.listener("published", port))
    result.address.pipe.path = published_socket(port)
    result.listener_filters.append(
        ListenerFilter(name="envoy.filters.listener.proxy_protocol", typed_config=packed(ProxyProtocol()))
    )
    return result


def _filled(result: Listener, servers: list[ServerView], view: GroupView, *, published: int = 0) -> tuple[Built, ...]:
    name = result.name
    result.traffic_direction = TrafficDirection.OUTBOUND
    result.access_log.extend(listener_logs(view.settings))
    result.per_connection_buffer_limit_bytes.value = EDGE_BUFFER
    result.filter_chains.extend(_chains(name, servers, view, published))
    if not result.filter_chains:
        return ()  # Envoy rejects a listener without filter chains; connections to the port are refused
    if any(served.bound.server.encrypted for served in servers):
        result.listener_filters.append(tls_inspector())
    sources = keys(*(served.bound.origin for served in servers))
    result.metadata.CopyFrom(of_objects(sources))
    policies = keys(*(each.origin for each in view.authorization), *(each.origin for each in view.authentication))
    return (build(name, result, (*sources, *policies)),)


def _chains(name: str, servers: list[ServerView], view: GroupView, published: int) -> Iterator[FilterChain]:
    guards = {
        unverified: guards_of(view, Connections(published, unverified=unverified))
        for unverified in {_is_unverified(served) for served in servers}
    }
    first = servers[0].bound
    if first.server.is_http and not first.server.encrypted:
        yield chain("", _http(name, servers, view, guards[False]))
        return
    yield from _apart(
        [
            candidate
            for served in servers
            for candidate in _of_server(name, served, view, guards[_is_unverified(served)])
        ]
    )


def _apart(candidates: list[FilterChain]) -> Iterator[FilterChain]:
    """Yield filter chains of which no two match the same address range and server name, because Envoy rejects a
    listener with such chains. If two candidates match the same, the first one is kept.

    Envoy chooses the narrowest range that contains the address, then the server name among the chains of that range
    only; it does not try a wider range afterwards. So a chain of a wider range, or of all addresses, is repeated for
    each narrower range inside it."""
    ranges = dict.fromkeys(
        _network(each) for candidate in candidates for each in candidate.filter_chain_match.prefix_ranges
    )
    taken: set[tuple[_Network | None, str]] = set()
    for candidate in candidates:
        wanted = candidate.filter_chain_match.server_names or ("",)
        own = [_network(each) for each in candidate.filter_chain_match.prefix_ranges]
        kept: dict[tuple[str, ...], list[_Network]] = {}
        for each in (None, *ranges):  # None stands for addresses in no range
            if own and not any(each is not None and _within(each, wider) for wider in own):
                continue
            if left := tuple(server_name for server_name in wanted if (each, server_name) not in taken):
                taken.update((each, server_name) for server_name in left)
                if each is None:
                    yield _matched(candidate, left)
                else:
                    kept.setdefault(left, []).append(each)
        for left, where in kept.items():
            yield _matched(candidate, left, where)


def _matched(
    candidate: FilterChain, server_names: tuple[str, ...], ranges: list[_Network] | None = None
) -> FilterChain:
    result = FilterChain()
    result.CopyFrom(candidate)
    narrowed = matching(tuple(each for each in server_names if each), tuple(str(each) for each in ranges or ()))
    del result.filter_chain_match.prefix_ranges[:]
    result.filter_chain_match.server_names[:] = narrowed.server_names
    result.filter_chain_match.prefix_ranges.extend(narrowed.prefix_ranges)
    return result


def _network(written: CidrRange) -> _Network:
    return ip_network(f"{written.address_prefix}/{written.prefix_len.value}")


def _within(inner: _Network, outer: _Network) -> bool:
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]


def _of_server(name: str, served: ServerView, view: GroupView, guards: Guards) -> Iterator[FilterChain]:
    bound, server = served.bound, served.bound.server
    hosts = tuple(dict.fromkeys(each.host for each in bound.hosts))
    if server.tls is None or not server.tls.terminates or not server.encrypted:
        for server_chain in _streams(served, view, guards):
            if not server.encrypted:
                yield server_chain
                continue
            _narrow(server_chain, hosts)
            if server_chain.filter_chain_match.server_names or "*" in hosts:
                yield server_chain
        return
    socket = gateway_tls.downstream(server, view)
    server_chains: list[FilterChain] = []
    if socket is not None and server.is_http:
        server_chains.append(chain(bound.route_name, _http(name, [served], view, guards)))
    elif socket is not None:
        server_chains.extend(_streams(served, view, guards))
    # The server owns its server names even without a certificate: this last chain closes connections that match no
    # chain before it.
    server_chains.append(chain(bound.route_name if server.is_http else "", _closing(view)))
    for server_chain in server_chains:
        _narrow(server_chain, hosts)
        if not server_chain.filter_chain_match.server_names and "*" not in hosts:
            continue
        if socket is not None:
            server_chain.transport_socket.CopyFrom(socket)
            server_chain.transport_socket_connect_timeout.CopyFrom(
                _HANDSHAKE
            )  # a client cannot keep a connection open without completing the handshake
        yield server_chain


def _closing(view: GroupView) -> Filter:
    return bytes_to(((names.BLACK_HOLE, 1),), view.settings)


def _http(name: str, sharing: list[ServerView], view: GroupView, guards: Guards) -> Filter:
    return http_at_gateway(
        f"outbound_{name}",
        sharing[0].bound.route_name,
        view.settings,
        guards.http,
        guards.noted,
        unverified=any(map(_is_unverified, sharing)),
        from_proxies=all(served.bound.server.mesh_only for served in sharing),
        grpc_web=any(served.bound.server.port.protocol is Protocol.GRPC_WEB for served in sharing),
    )


def _is_unverified(served: ServerView) -> bool:
    tls = served.bound.server.tls
    return tls is not None and tls.unverified


def _streams(served: ServerView, view: GroupView, guards: Guards) -> Iterator[FilterChain]:
    """Yield the filter chains of a server that is not HTTP (`served`), one for each match of its routes: of its `tls`
    routes where TLS is passed through, else of its `tcp` routes. Each begins with `guards`."""
    seen, bound = served.streams, served.bound
    if seen is None:
        return
    unopened = bound.server.encrypted and not (bound.server.tls is not None and bound.server.tls.terminates)
    for routing in seen.routes:
        for route in routing.tls if unopened else routing.tcp:
            for match in route.match or (L4Match(),):
                through = not match.gateways or bound.gateway in match.gateways
                if not through or not applies(_anywhere(match), seen.caller, bound.server.port.number):
                    continue
                if not route.route and route.failing:  # close these connections: no other server may serve them
                    stream_chain = chain("", _closing(view))
                    stream_chain.filter_chain_match.CopyFrom(matching(match.sni_hosts, match.destination_subnets))
                elif route.route:
                    stream_route = stream(seen, bound.server.port, route, match, routing.origin)
                    stream_chain = filter_chain(stream_route, seen, bound.server.port, view.settings)
                    end = stream_chain.filters[-1]
                    del stream_chain.filters[-1]
                    stream_chain.filters.extend([*guards.network, end])
                else:
                    continue
                # The metadata is that of the chain, not of the listener, so that a renamed VirtualService replaces only
                # this chain.
                stream_chain.metadata.CopyFrom(of_objects(keys(routing.origin)))
                yield stream_chain


def _anywhere(match: L4Match) -> L4Match:
    """Return the conditions of `match` that `applies` must check: port, source labels and source namespace. The
    gateways are left out, because the function that calls this one has checked them. A client outside the mesh has
    neither labels nor a namespace, so a match with these never applies."""
    return L4Match(port=match.port, source_labels=match.source_labels, source_namespace=match.source_namespace)


def _narrow(server_chain: FilterChain, hosts: tuple[str, ...]) -> None:
    """Restrict the server names (SNI) of a filter chain to those that the `hosts` of its server cover."""
    wanted = tuple(server_chain.filter_chain_match.server_names) or ("*",)
    server_names = dict.fromkeys(narrower(host.lower(), name.lower()) for name in wanted for host in hosts)
    server_chain.filter_chain_match.server_names[:] = (
        [] if "*" in server_names else [name for name in server_names if name]
    )
