"""Explains the server's side of a connection: the filter chain that matches, either of `virtualInbound` or of a
listener that a Sidecar binds, the TLS handshake, and the guards before the workload."""

from __future__ import annotations

import msgspec
from envoy.config.core.v3.base_pb2 import TrafficDirection
from envoy.config.listener.v3.listener_components_pb2 import FilterChain
from envoy.config.rbac.v3 import rbac_pb2
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.rbac.v3.rbac_pb2 import RBAC
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import DownstreamTlsContext

from weft.explain import tls
from weft.explain.cluster import NoTarget, find, passes_on
from weft.explain.decision import DecisionStage, Kind, ObjectSource, Unsure, Verdict, policy_source, sources_of
from weft.explain.guards import pass_guards
from weft.explain.http import manage
from weft.explain.listener import INBOUND, IncomingConnection, bound, chain, chains_of
from weft.explain.rbac import unmet_of
from weft.explain.request import Request, RequestHeaders, Speaks, headers_of
from weft.explain.rule import GuardInput
from weft.explain.walk import Walk
from weft.explain.world import EnvoyResources, ExplainedWorkload, World


class Arrival(msgspec.Struct, frozen=True):
    """A connection or request that reaches the server's proxy. `headers`: None if the connection is not known to be
    HTTP. `http2`: the request is HTTP/2. `offer`: the TLS of the caller's proxy; None if that proxy uses no TLS. An
    application's own TLS is in `connection`."""

    connection: IncomingConnection
    headers: RequestHeaders | None
    http2: bool = False
    offer: tls.Offer | None = None


def receive(walk: Walk, server: ExplainedWorkload, arrival: Arrival, request: Request, world: World) -> Verdict:
    walk.proxy = server.name
    walk.workload = server.name
    resources, connection = server.resources, arrival.connection
    listener = None
    if resources is not None and world.intercepts(server, connection.address, connection.port, inbound=True):
        listener = resources.listeners.get(INBOUND)
    elif resources is not None:
        listener = bound(resources, connection, TrafficDirection.INBOUND)
    if resources is None or listener is None:
        if arrival.offer is not None:
            return _unanswered(walk, server, connection)
        return _deliver(walk, server, arrival, connection.port)
    filter_chain = chain(listener, connection)
    if filter_chain is None:
        how = "TLS" if connection.speaks is Speaks.TLS else "plaintext"
        refusing = chains_of(listener, connection)
        sources = tuple(dict.fromkeys(source for each in refusing for source in _sources(resources, each)))
        walk.tell(DecisionStage.INBOUND, f"no filter chain accepts {how} on port {connection.port}", sources)
        return walk.end(
            Kind.CLOSED, f"{server.name} accepts no {how} on port {connection.port}", detail="filter_chain_not_found"
        )
    walk.tell(
        DecisionStage.INBOUND,
        f"the filter chain {filter_chain.name} matches{_criteria(filter_chain)}",
        _sources(resources, filter_chain),
    )
    context = resources.opened(filter_chain.transport_socket.typed_config, DownstreamTlsContext)
    identity = ""
    if context is None and arrival.offer is not None:
        return _unanswered(walk, server, connection)
    if context is not None:
        if arrival.offer is not None and not tls.takes_server(walk, arrival.offer, server.identity):
            return walk.end(Kind.CLOSED, f"{server.name} is not the expected server", flags="UF", detail="tls_error")
        identity = arrival.offer.identity if arrival.offer is not None else ""
        seen = GuardInput(connection, (identity,) if identity else (), headers=RequestHeaders())
        allowing, unmet = _allowing(resources, filter_chain, seen)
        if not tls.takes_client(walk, context, identity, _sources(resources, filter_chain), allowing, unmet):
            by_policy = walk.steps[-1].stage is DecisionStage.POLICY
            why = "a policy denies the connection: the TLS handshake fails" if by_policy else "the TLS handshake fails"
            return walk.end(Kind.CLOSED, why, detail="tls_error")
        if arrival.offer is None and connection.speaks is Speaks.TLS:
            arrival = _decrypted(walk, server, filter_chain, arrival, request)
    return _filters(walk, server, filter_chain, arrival, identity, request, world)


def _decrypted(
    walk: Walk, server: ExplainedWorkload, filter_chain: FilterChain, arrival: Arrival, request: Request
) -> Arrival:
    """The request inside the TLS that the caller itself uses (not the mesh's mutual TLS), and that the server's proxy
    terminates for its workload. `arrival`: the TLS connection. `request`: what the caller sends in it. The result has
    HTTP headers if the filter chain expects HTTP; else it is `arrival` unchanged."""
    resources = server.resources
    sources = _sources(resources, filter_chain) if resources is not None else ()
    walk.tell(DecisionStage.TLS, f"{server.name} terminates the caller's TLS", sources)
    http = filter_chain.filters[-1].typed_config.Is(HttpConnectionManager.DESCRIPTOR)
    return msgspec.structs.replace(arrival, headers=headers_of(request)) if http else arrival


def _sources(resources: EnvoyResources, filter_chain: FilterChain) -> tuple[ObjectSource, ...]:
    """The objects from which the filter chain comes: first those that decide which connections the chain accepts, then
    the services that share the chain's port."""
    cluster = resources.clusters.get(f"inbound|{filter_chain.filter_chain_match.destination_port.value}||")
    named = sources_of(cluster.metadata) if cluster is not None else ()
    return (*sources_of(filter_chain.metadata), *(each for each in named if each.kind != "DestinationRule"))


def _allowing(
    resources: EnvoyResources, filter_chain: FilterChain, seen: GuardInput
) -> tuple[tuple[ObjectSource, ...], str]:
    """Return (policies, unmet): the ALLOW policies of the filter chain, one of which must match the connection
    (`seen`), and, as text, the conditions of these policies that the connection does not meet."""
    opened = (resources.opened(each.typed_config, RBAC) for each in filter_chain.filters)
    rules = [each.rules for each in opened if each is not None and each.HasField("rules")]
    allowing = [each for each in rules if each.action == rbac_pb2.RBAC.ALLOW]
    names = (name for each in allowing for name in sorted(each.policies))
    sources = tuple(dict.fromkeys(source for name in names for source in policy_source(name)))
    return sources, "".join(unmet_of(each, seen) for each in allowing)


def _unanswered(walk: Walk, server: ExplainedWorkload, connection: IncomingConnection) -> Verdict:
    walk.tell(DecisionStage.TLS, f"no proxy terminates mutual TLS on port {connection.port} of {server.name}")
    return walk.end(Kind.CLOSED, "the TLS handshake fails", flags="UF", detail="tls_error")


def _filters(
    walk: Walk,
    server: ExplainedWorkload,
    filter_chain: FilterChain,
    arrival: Arrival,
    identity: str,
    request: Request,
    world: World,
) -> Verdict:
    resources, connection = server.resources, arrival.connection
    assert resources is not None  # noqa: S101 (the caller has looked)
    seen = GuardInput(connection, (identity,) if identity else (), headers=RequestHeaders())
    end = pass_guards(walk, resources, filter_chain, seen)
    if isinstance(end, Verdict):
        return end
    upgraded = arrival.http2 and request.speaks is Speaks.HTTP  # the caller's proxy has turned HTTP/1.1 into HTTP/2
    if isinstance(end, TcpProxy):
        if upgraded:
            walk.tell(
                DecisionStage.INBOUND,
                f"{server.name} treats port {connection.port} as TCP",
                _sources(resources, filter_chain),
            )
            raise _as_it_is(server)
        return _to_workload(walk, server, end.cluster, arrival, world)
    if arrival.headers is None or (connection.speaks is Speaks.TLS and not filter_chain.HasField("transport_socket")):
        why = f"{server.name} expects HTTP, but the connection carries something else"
        walk.tell(DecisionStage.INBOUND, why, _sources(resources, filter_chain))
        return walk.end(Kind.CLOSED, why, detail="http1.codec_error")
    seen.headers, seen.http2 = arrival.headers, arrival.http2
    route = walk.route
    result = manage(walk, resources, end, request, seen)
    # The verdict names the route of the caller's proxy, if that proxy has chosen one.
    walk.route = route if walk.cluster else walk.route
    if isinstance(result, Verdict):
        return msgspec.structs.replace(result, route=walk.route)
    cluster = resources.clusters.get(result.cluster)
    if upgraded and cluster is not None and passes_on(resources, cluster):
        what = f"{server.name} forwards requests to port {connection.port} in the HTTP version that they arrive in"
        walk.tell(DecisionStage.INBOUND, what, _sources(resources, filter_chain))
        raise _as_it_is(server)
    return _to_workload(walk, server, result.cluster, arrival, world)


def _as_it_is(server: ExplainedWorkload) -> Unsure:
    return Unsure(
        f"the application of {server.name} gets the HTTP/2 of the caller's proxy unchanged: if the application "
        "supports only HTTP/1.1, it does not understand the request, and the caller gets 502"
    )


def _to_workload(walk: Walk, server: ExplainedWorkload, cluster: str, arrival: Arrival, world: World) -> Verdict:
    assert server.resources is not None  # noqa: S101 (the caller has looked)
    called = walk.cluster, walk.endpoint, walk.endpoints
    target = find(walk, server.resources, cluster, arrival.connection, server, world)
    if called[0]:  # a caller's proxy has chosen a cluster: the verdict names that cluster and its endpoint
        walk.cluster, walk.endpoint, walk.endpoints = called
    if isinstance(target, NoTarget):
        if arrival.headers is None:
            return walk.end(Kind.CLOSED, target.why, detail=target.detail)
        return walk.end(Kind.FAILED, target.why, status=503, flags=target.flags, detail=target.detail)
    return _deliver(walk, server, arrival, target.place.port)


def _deliver(walk: Walk, server: ExplainedWorkload, arrival: Arrival, port: int) -> Verdict:
    if server.ports is not None and port and port not in server.ports:
        walk.tell(DecisionStage.WORKLOAD, f"nothing listens on port {port} of {server.name}")
        why = f"{server.name} does not listen on port {port}"
        if arrival.headers is None or server.resources is None:
            return walk.end(Kind.CLOSED, why)
        return walk.end(Kind.FAILED, why, status=503, flags="UF", detail="upstream_reset_before_response_started")
    walk.tell(
        DecisionStage.WORKLOAD,
        f"the call reaches {server.name} on port {port}" if port else f"the call reaches {server.name}",
    )
    return walk.end(Kind.DELIVERED, f"the call reaches {server.name}", headers=arrival.headers)


def _criteria(filter_chain: FilterChain) -> str:
    match = filter_chain.filter_chain_match
    parts = [match.transport_protocol] if match.transport_protocol else []
    parts += [f"ALPN {', '.join(match.application_protocols)}"] if match.application_protocols else []
    return f" ({'; '.join(parts)})" if parts else ""
