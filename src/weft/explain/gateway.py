"""Explains a request at a gateway, from outside the mesh or from a workload that uses the gateway for egress: the
listener of the called port, the server that matches the name, TLS termination, and the guards before the routes.
After that, the request continues as from any other proxy.

Rule: nothing is known about a caller outside the mesh. It is assumed to have an unassigned address, and to present a
client certificate where one is required. The steps of the explanation name these assumptions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec
from envoy.config.core.v3.protocol_pb2 import HttpProtocolOptions
from envoy.config.listener.v3.listener_components_pb2 import FilterChain
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy
from envoy.extensions.transport_sockets.tls.v3.common_pb2 import CertificateValidationContext
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import DownstreamTlsContext

from weft.explain import listener, tls
from weft.explain.decision import DecisionStage, Kind, Unsure, Verdict, sources_of
from weft.explain.guards import pass_guards
from weft.explain.http import ForwardedRequest, manage
from weft.explain.inbound import Arrival
from weft.explain.listener import IncomingConnection
from weft.explain.request import Request, RequestHeaders, Speaks, headers_of
from weft.explain.rule import GuardInput
from weft.explain.walk import Walk
from weft.explain.world import Closed, EnvoyResources, ExplainedWorkload
from weft.model.names import host_covers

OUTSIDE = "203.0.113.1"  # address of an external client if none is given; unassigned (RFC 5737)
_BLACK_HOLE = "BlackHoleCluster"
# How often one request may pass the same gateway. Ends the loop of a gateway whose routes lead back to itself.
_MOST_PASSES = 4

Tcp = Callable[[TcpProxy], str]


class Send(Protocol):
    """A function that predicts what happens to a connection or request that a gateway forwards to a cluster, and
    returns the verdict. `connection`: the one that arrived at the gateway. `to`: the name of the cluster, or the
    request with its cluster and route. `headers`: None if the gateway forwards the connection as TCP. `inner`: the
    request after the gateway has terminated TLS. `sealed`: set if the connection carries the TLS of a caller's proxy,
    which the gateway does not terminate."""

    def __call__(
        self,
        connection: IncomingConnection,
        to: str | ForwardedRequest,
        headers: RequestHeaders | None,
        inner: Request,
        sealed: Arrival | None = None,
    ) -> Verdict: ...


def enter(walk: Walk, request: Request, gateway: ExplainedWorkload, send: Send, cluster: Tcp) -> Verdict:
    resources, doors = gateway.resources, gateway.doors or {}
    assumed = f"is assumed to be at {OUTSIDE}, an unassigned address (--source-address sets another)"
    walk.tell(DecisionStage.NAME, f"the caller {f'is at {request.source}' if request.source else assumed}")
    assert resources is not None  # noqa: S101 (a gateway is a proxy)
    port = doors.get(request.port, request.port)
    taking, by = _listening(resources, port), ""
    if taking is None and request.port in gateway.published:
        port, by = gateway.published[request.port], " of the machine"
        taking = _listening(resources, port)
    where = f"port {request.port}{by}" + (f", which is {port} at {gateway.name}" if port != request.port else "")
    if taking is None:
        if (shut := _closed(gateway, port)) is not None:
            return _shut(walk, f"from outside to {where}", shut)
        walk.tell(
            DecisionStage.LISTENER, f"from outside to {where}: {gateway.name} serves no such port{_served(gateway)}"
        )
        return walk.end(Kind.CLOSED, f"{gateway.name} does not listen on port {port}")
    address = next(iter(gateway.addresses), "")
    connection = IncomingConnection(
        request.source or OUTSIDE, address, port, request.speaks, request.server_name, request.offers
    )
    headers = headers_of(request) if request.is_http else None
    arrival = Arrival(connection, headers, request.speaks is Speaks.HTTP2)
    return _taken(walk, gateway, taking, arrival, request, f"from outside to {where}", send, cluster)


def meet(
    walk: Walk, gateway: ExplainedWorkload, arrival: Arrival, request: Request, send: Send, cluster: Tcp
) -> Verdict:
    """Returns the verdict of a connection (`arrival`) to the gateway from a workload of the mesh or its proxy. The
    route, cluster and endpoint in the verdict are those that the caller's proxy chose, not those that the gateway
    chose. `send`: predicts what happens to what the gateway forwards. `cluster`: chooses the cluster of a TCP proxy
    filter."""
    walk.proxy = walk.workload = gateway.name
    called = (walk.route, walk.cluster, walk.endpoint, walk.endpoints)
    if sum(step.proxy == gateway.name and step.stage is DecisionStage.LISTENER for step in walk.steps) >= _MOST_PASSES:
        raise Unsure(f"the call loops through {gateway.name}")
    resources, port = gateway.resources, arrival.connection.port
    taking = _listening(resources, port) if resources is not None else None
    if taking is None and (known := _closed(gateway, port)) is not None:
        verdict = _shut(walk, f"from the mesh to port {port}", known)
    elif taking is None:
        walk.tell(DecisionStage.LISTENER, f"{gateway.name} serves no port {port}{_served(gateway)}")
        verdict = walk.end(Kind.CLOSED, f"{gateway.name} does not listen on port {port}", flags="UF")
    else:
        verdict = _taken(walk, gateway, taking, arrival, request, f"from the mesh to port {port}", send, cluster)
    if not called[1]:
        return verdict
    route, cluster_name, endpoint, endpoints = called
    return msgspec.structs.replace(verdict, route=route, cluster=cluster_name, endpoint=endpoint, endpoints=endpoints)


def _taken(
    walk: Walk,
    gateway: ExplainedWorkload,
    taking: Listener,
    arrival: Arrival,
    request: Request,
    what: str,
    send: Send,
    cluster: Tcp,
) -> Verdict:
    resources, connection, client_tls = gateway.resources, arrival.connection, arrival.offer
    assert resources is not None  # noqa: S101 (a workload with a listener has a proxy)
    chain = listener.chain(taking, connection)
    how = f" for {connection.server_name}" if connection.speaks is Speaks.TLS and connection.server_name else ""
    what = f"{what}{how}: the listener {taking.name}"
    if chain is None:
        plain = connection.speaks is not Speaks.TLS
        why = (
            "whose servers expect TLS, but the connection is plaintext"
            if plain
            else "but none of its servers matches that name"
        )
        walk.tell(DecisionStage.LISTENER, f"{what}, {why}", sources_of(taking.metadata))
        why = "the servers expect TLS, but this is plaintext" if plain else "no server matches the name"
        return walk.end(Kind.CLOSED, why, detail="filter_chain_not_found")
    walk.tell(
        DecisionStage.LISTENER, f"{what}, {_of(chain)}", (*sources_of(taking.metadata), *sources_of(chain.metadata))
    )
    context = resources.opened(chain.transport_socket.typed_config, DownstreamTlsContext)
    identity = ""
    known = _closed(gateway, connection.port, tuple(chain.filter_chain_match.server_names) or ("*",))
    if known is not None and _goes_nowhere(resources, chain):
        return _shut(walk, "", known)
    sealed = arrival if context is None and client_tls is not None else None
    if sealed is not None and not _passes_on(walk, gateway, chain):
        return walk.end(Kind.CLOSED, "the TLS handshake fails", flags="UF", detail="tls_error")
    if context is not None and connection.speaks is not Speaks.TLS:
        walk.tell(DecisionStage.TLS, "the server expects TLS, but the connection is plaintext")
        return walk.end(Kind.CLOSED, "the TLS handshake fails", detail="tls_error")
    if context is not None and client_tls is not None:
        identity = client_tls.identity
        shown = gateway.identity if _is_of_mesh(context) else ""
        if not tls.takes_server(walk, client_tls, shown) or not tls.takes_client(walk, context, identity):
            return walk.end(Kind.CLOSED, "the TLS handshake fails", flags="UF", detail="tls_error")
    elif context is not None and (unread := _unread(gateway, context)):
        walk.tell(DecisionStage.TLS, f"{gateway.name} rejects {unread}: {gateway.unread[unread]}")
        return walk.end(Kind.CLOSED, "the gateway's proxy rejects its certificate", detail="tls_error")
    elif context is not None:
        request = _opened(walk, context, request)
        headers = headers_of(request) if request.is_http else None
        arrival = Arrival(connection, headers, request.speaks is Speaks.HTTP2)
    encrypted = context is not None
    return _filters(
        walk, resources, chain, arrival, identity, request, send, cluster, encrypted=encrypted, sealed=sealed
    )


def _passes_on(walk: Walk, gateway: ExplainedWorkload, chain: FilterChain) -> bool:
    """Whether a server that does not terminate TLS forwards the mutual TLS of a caller's proxy: yes for TCP and TLS
    servers, no for HTTP servers."""
    if any(each.name.endswith("http_connection_manager") for each in chain.filters):
        walk.tell(
            DecisionStage.TLS,
            f"the server expects plaintext, but the caller's proxy sends mutual TLS to {gateway.name}",
        )
        return False
    walk.tell(DecisionStage.TLS, "the server forwards the TLS of the caller's proxy unchanged")
    return True


def _is_of_mesh(context: DownstreamTlsContext) -> bool:
    """Whether a server with the TLS settings `context` presents the workload certificate of the gateway's proxy. That
    certificate comes over SDS from the node's agent; certificates from Secrets come with the configuration."""
    shown = context.common_tls_context.tls_certificate_sds_secret_configs
    return any(each.sds_config.WhichOneof("config_source_specifier") == "api_config_source" for each in shown)


def _served(gateway: ExplainedWorkload) -> str:
    known = ", ".join(map(str, sorted(gateway.doors or {})))
    return f" (it serves {known})" if known else " (it serves none)"


def _listening(resources: EnvoyResources, port: int) -> Listener | None:
    for each in resources.listeners.values():
        if each.address.socket_address.port_value == port:
            return each
    return None


def _closed(gateway: ExplainedWorkload, port: int, names: tuple[str, ...] = ()) -> Closed | None:
    """The first server of the gateway on `port` that is configured but accepts no connections; None if there is none.
    If `names` are given, only a server with a host that covers one of the names counts."""
    for each in gateway.closed:
        if each.port == port and (not names or any(host_covers(host, name) for host in each.hosts for name in names)):
            return each
    return None


def _shut(walk: Walk, where: str, known: Closed) -> Verdict:
    walk.tell(DecisionStage.LISTENER, f"{where}: {known.what}" if where else known.what, known.sources)
    return walk.end(Kind.CLOSED, f"the server is closed: {known.why}")


def _goes_nowhere(resources: EnvoyResources, chain: FilterChain) -> bool:
    ends = (resources.opened(each.typed_config, TcpProxy) for each in chain.filters)
    return any(each is not None and each.cluster == _BLACK_HOLE for each in ends)


def _of(chain: FilterChain) -> str:
    names = ", ".join(chain.filter_chain_match.server_names)
    return f"the server {chain.name or 'there'}" + (f" for {names}" if names else "")


def _unread(gateway: ExplainedWorkload, context: DownstreamTlsContext) -> str:
    """The name of a Secret that a server with the TLS settings `context` needs, and that the gateway's proxy rejected;
    "" if there is none."""
    common = context.common_tls_context
    wanted = [each.name for each in common.tls_certificate_sds_secret_configs]
    wanted.append(common.combined_validation_context.validation_context_sds_secret_config.name)
    return next((name for name in wanted if name in gateway.unread), "")


def _opened(walk: Walk, context: DownstreamTlsContext, request: Request) -> Request:
    """Returns the request that the client sends inside the TLS connection, which a server with the TLS settings
    `context` terminates. The returned request is HTTP/2 if both sides offer `h2` by ALPN, HTTP/1 if the client offers
    only other protocols, and plain bytes if it offers none."""
    common = context.common_tls_context
    shown = ", ".join(each.name for each in common.tls_certificate_sds_secret_configs)
    asks = context.require_client_certificate.value
    checks = common.HasField("combined_validation_context")
    more = (
        ", and rejects clients without a trusted certificate"
        if asks
        else ", and verifies a client certificate if one is presented"
    )
    if tls.validation(common).trust_chain_verification == CertificateValidationContext.ACCEPT_UNTRUSTED:
        more = ", and accepts all clients, because it does not verify client certificates"
    walk.tell(DecisionStage.TLS, f"the server terminates TLS with {shown}{more if asks or checks else ''}")
    http2 = "h2" in request.offers and "h2" in common.alpn_protocols
    spoken = Speaks.HTTP2 if http2 else Speaks.HTTP if request.offers else Speaks.BYTES
    return msgspec.structs.replace(request, speaks=spoken, server_name="", offers=())


def _filters(
    walk: Walk,
    resources: EnvoyResources,
    chain: FilterChain,
    arrival: Arrival,
    identity: str,
    request: Request,
    send: Send,
    cluster: Tcp,
    *,
    encrypted: bool,
    sealed: Arrival | None,
) -> Verdict:
    connection = arrival.connection
    seen = GuardInput(connection, (identity,) if identity else (), headers=RequestHeaders())
    end = pass_guards(walk, resources, chain, seen)
    if isinstance(end, Verdict):
        return end
    if isinstance(end, TcpProxy):
        return send(connection, cluster(end), None, request, sealed)
    if arrival.headers is None:
        walk.tell(DecisionStage.LISTENER, "the server expects HTTP, but the connection carries something else")
        return walk.end(Kind.CLOSED, "the server expects HTTP", detail="http1.codec_error")
    seen.headers, seen.http2 = arrival.headers, arrival.http2
    seen.headers.set("x-forwarded-proto", "https" if encrypted else "http")
    if (refusal := _underscores(walk, end, seen)) is not None:
        return refusal
    result = manage(walk, resources, end, request, seen)
    spoken = Speaks.HTTP2 if arrival.http2 else Speaks.HTTP
    inner = msgspec.structs.replace(request, speaks=spoken, server_name="", offers=())
    return result if isinstance(result, Verdict) else send(connection, result, seen.headers, inner)


def _underscores(walk: Walk, manager: HttpConnectionManager, seen: GuardInput) -> Verdict | None:
    action = manager.common_http_protocol_options.headers_with_underscores_action
    names = list(dict.fromkeys(name for name, _ in seen.headers if "_" in name))
    if not names or action == HttpProtocolOptions.ALLOW:
        return None
    what = f"the header {names[0]} has an underscore: an application may mistake it for another header"
    if action == HttpProtocolOptions.DROP_HEADER:
        walk.tell(DecisionStage.ROUTE, f"{what}; the header is dropped")
        for name in names:
            seen.headers.remove(name)
        return None
    walk.tell(DecisionStage.ROUTE, what)
    version = "http2" if seen.http2 else "http1"
    why = "a header's name has an underscore"
    return walk.end(Kind.ANSWERED, why, status=400, detail=f"{version}.unexpected_underscore")
