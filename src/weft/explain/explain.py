"""`explain(request, world)`: the journey of one hypothetical request, from the caller's connection to the workload that
gets it or to whoever stops it. Each stage has a file of its own; here they follow one another."""

from __future__ import annotations

import msgspec
from envoy.config.listener.v3.listener_components_pb2 import FilterChain
from envoy.config.route.v3.route_components_pb2 import Route
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.set_filter_state.v3.set_filter_state_pb2 import Config as SetFilterState
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy

from weft.explain import listener, rbac, tls
from weft.explain.cluster import NoTarget, find
from weft.explain.decision import Explanation, Kind, Stage, Unsure, Verdict, sources_of
from weft.explain.http import manage
from weft.explain.inbound import Arrival, receive
from weft.explain.listener import Connection
from weft.explain.request import Headers, Request, Speaks, headers_of
from weft.explain.route import is_grpc
from weft.explain.walk import Walk, every
from weft.explain.world import Resources, Workload, World

_OFFERS = "envoy.network.application_protocols"
_GRPC_OF_HTTP = {400: 13, 401: 16, 403: 7, 404: 12, 429: 14, 502: 14, 503: 14, 504: 14}


def explain(request: Request, world: World) -> Explanation:
    return every(lambda walk: _as_grpc(request, _journey(walk, request, world)))


def _journey(walk: Walk, request: Request, world: World) -> Verdict:
    caller = world.workload(request.caller) or Workload(request.caller)
    walk.proxy = caller.name
    address = request.address
    if not address:
        addresses = world.resolve(request.host, caller)
        if not addresses:
            walk.tell(Stage.NAME, f"{request.host} is not the name of anybody")
            return walk.end(Kind.FAILED, f"{request.host} does not resolve")
        address = addresses[0]
        others = f", the first of {len(addresses)}" if len(addresses) > 1 else ""
        walk.tell(Stage.NAME, f"{request.host} is {address}{others}")
    source = next(iter(caller.addresses), "127.0.0.1")
    connection = Connection(source, address, request.port, request.speaks, request.server_name, request.offers)
    if caller.resources is None or not world.intercepts(caller, address, request.port, inbound=False):
        why = "has no proxy" if caller.resources is None else "does not send this through its proxy"
        walk.tell(Stage.LISTENER, f"{caller.name or 'the caller'} {why}: straight to {address}:{request.port}")
        return _arrive(walk, world, Arrival(connection, "", headers_of(request) if request.is_http else None), request)
    return _outbound(walk, request, world, caller, caller.resources, connection)


def _outbound(
    walk: Walk, request: Request, world: World, caller: Workload, resources: Resources, connection: Connection
) -> Verdict:
    taking = listener.outbound(resources, connection)
    if taking is None:
        raise Unsure(f"{caller.name} has no listener for what goes out")
    chain = listener.chain(taking, connection)
    where = f"the listener {taking.name} takes {connection.address}:{connection.port}"
    if chain is None:
        walk.tell(Stage.LISTENER, f"{where}, and none of its chains", sources_of(taking.metadata))
        return walk.end(Kind.CLOSED, "no filter chain takes it", detail="filter_chain_not_found")
    walk.tell(Stage.LISTENER, f"{where}, chain {chain.name or _end(chain)}", sources_of(taking.metadata))
    offers: tuple[str, ...] = ()
    for each in chain.filters:
        if (state := resources.opened(each.typed_config, SetFilterState)) is not None:
            offers = _offers(state) or offers
        elif (manager := resources.opened(each.typed_config, HttpConnectionManager)) is not None:
            seen = rbac.Seen(connection, headers=headers_of(request))
            result = manage(walk, resources, manager, request, seen)
            if isinstance(result, Verdict):
                return result
            sent = _send(walk, request, world, caller, resources, connection, result.cluster, seen.headers, offers)
            return _after_retries(sent, result.route)
        elif (proxy := resources.opened(each.typed_config, TcpProxy)) is not None:
            cluster = _tcp_cluster(walk, proxy)
            return _send(walk, request, world, caller, resources, connection, cluster, None, offers)
    raise Unsure(f"the chain {chain.name} ends nowhere")


def _send(
    walk: Walk,
    request: Request,
    world: World,
    caller: Workload,
    resources: Resources,
    connection: Connection,
    cluster: str,
    headers: Headers | None,
    offers: tuple[str, ...],
) -> Verdict:
    """From the caller's proxy to whoever is behind the cluster. `headers`: None where the proxy sees only bytes."""
    target = find(walk, resources, cluster, connection, caller, world)
    if isinstance(target, NoTarget):
        if headers is None:
            return walk.end(Kind.CLOSED, target.why, flags=target.flags, detail=target.detail)
        return walk.end(Kind.FAILED, target.why, status=503, flags=target.flags, detail=target.detail)
    made = tls.offer(walk, resources, target.cluster, target.place, offers)
    if target.workload is None:
        walk.tell(Stage.ENDPOINT, f"{target.place.address}:{target.place.port} is nobody that the mesh knows")
        return walk.end(Kind.PASSED_ON, f"it goes on to {target.place.address}:{target.place.port}", headers=headers)
    server = target.workload
    identity = caller.identity if made and made.shows else ""
    if made is not None and server.resources is None and not made.foreign:
        walk.tell(Stage.TLS, f"{server.name} has no proxy that would answer")
        return _broken(walk, headers, "the TLS handshake fails", "UF")
    if made is not None and made.foreign:
        raise Unsure(f"whether {server.name} shows a certificate that the rule's files trust")
    speaks = Speaks.TLS if made else Speaks.HTTP if headers is not None else request.speaks
    arriving = Connection(
        connection.source,
        target.place.address,
        target.place.port,
        speaks,
        made.server_name if made else connection.server_name,
        made.offers if made else connection.offers,
    )
    inner = headers if headers is not None else headers_of(request) if request.is_http else None
    if made is not None and not tls.takes_server(walk, made, server.identity):
        return _broken(walk, headers, f"{server.name} is not who should answer", "UF")
    result = receive(walk, server, Arrival(arriving, identity, inner), request, world)
    if result.kind is Kind.CLOSED and headers is not None:
        return _broken(walk, headers, result.why, "")
    return result


def _arrive(walk: Walk, world: World, arrival: Arrival, request: Request) -> Verdict:
    connection = arrival.connection
    server = world.at(connection.address)
    if server is None:
        walk.tell(Stage.ENDPOINT, f"{connection.address} is nobody that the mesh knows")
        return walk.end(
            Kind.PASSED_ON, f"it goes on to {connection.address}:{connection.port}", headers=arrival.headers
        )
    return receive(walk, server, arrival, request, world)


def _broken(walk: Walk, headers: Headers | None, why: str, flags: str) -> Verdict:
    """What a caller gets to see of a connection between two proxies that does not come about."""
    if headers is None:
        return walk.end(Kind.CLOSED, why, flags=flags)
    return walk.end(Kind.FAILED, why, status=503, flags=flags, detail="upstream_reset_before_response_started")


def _after_retries(verdict: Verdict, route: Route) -> Verdict:
    """A connection that fails is tried again where the route says so, and the log says that it was."""
    policy = route.route.retry_policy
    tried = policy.num_retries.value and "connect-failure" in policy.retry_on.split(",")
    if not verdict.flags.endswith("UF") or not tried:
        return verdict
    return msgspec.structs.replace(verdict, flags=verdict.flags.replace("UF", "URX,UF"))


def _tcp_cluster(walk: Walk, proxy: TcpProxy) -> str:
    if proxy.WhichOneof("cluster_specifier") == "cluster":
        return str(proxy.cluster)
    parts = proxy.weighted_clusters.clusters
    chosen = walk.choose([(part.weight, part) for part in parts])
    total = sum(part.weight for part in parts)
    walk.tell(Stage.ROUTE, f"by weight {chosen.weight} of {total} it goes to {chosen.name}")
    return str(chosen.name)


def _offers(state: SetFilterState) -> tuple[str, ...]:
    for value in state.on_new_connection:
        if value.object_key == _OFFERS:
            return tuple(value.format_string.text_format_source.inline_string.split(","))
    return ()


def _end(chain: FilterChain) -> str:
    return "for HTTP" if chain.filters[-1].name.endswith("http_connection_manager") else "for bytes"


def _as_grpc(request: Request, verdict: Verdict) -> Verdict:
    """To a gRPC caller, what a proxy says itself is an answer of status 200 that carries gRPC's own status."""
    said = verdict.kind in (Kind.ANSWERED, Kind.DENIED, Kind.FAILED) and verdict.status
    if not said or verdict.grpc_status or not is_grpc(headers_of(request)) or verdict.detail == "cors_response":
        return verdict
    return msgspec.structs.replace(verdict, status=200, grpc_status=_GRPC_OF_HTTP.get(verdict.status, 2))
