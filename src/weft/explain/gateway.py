"""From outside to a gateway: the listener of the port that was called, the server that has the name, the end of the TLS
that it ends, and the guards before its routes. From there it goes on as from any other proxy.

Rule: nobody knows a caller from outside. Its address is one that nobody has, and where a certificate is asked for, it
is told that one is.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from envoy.config.core.v3.protocol_pb2 import HttpProtocolOptions
from envoy.config.listener.v3.listener_components_pb2 import FilterChain
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.network.ext_authz.v3.ext_authz_pb2 import ExtAuthz
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.rbac.v3.rbac_pb2 import RBAC
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import DownstreamTlsContext

from weft.explain import listener, matchers, rbac
from weft.explain.decision import Kind, Stage, Unsure, Verdict, sources_of
from weft.explain.http import Forwarded, manage
from weft.explain.listener import Connection
from weft.explain.request import Headers, Request, Speaks, headers_of
from weft.explain.rule import Seen
from weft.explain.walk import Walk
from weft.explain.world import Resources, Workload

OUTSIDE = "203.0.113.1"  # nobody's (RFC 5737)

# What goes on from there: to a cluster, with the headers that are sent, or none where nobody has looked for any.
Send = Callable[[Connection, str | Forwarded, Headers | None, Request], Verdict]
Tcp = Callable[[TcpProxy], str]


def enter(walk: Walk, request: Request, gateway: Workload, send: Send, cluster: Tcp) -> Verdict:
    resources, doors = gateway.resources, gateway.doors or {}
    assert resources is not None  # noqa: S101 (a gateway is a proxy)
    port = doors.get(request.port, request.port)
    taking = _listening(resources, port)
    where = f"port {request.port}" + (f", which is {port} at {gateway.name}" if port != request.port else "")
    if taking is None:
        known = ", ".join(map(str, sorted(doors))) or "none"
        walk.tell(Stage.LISTENER, f"from outside to {where}: {gateway.name} serves no such port (it serves {known})")
        return walk.end(Kind.CLOSED, f"{gateway.name} does not listen on port {port}")
    address = next(iter(gateway.addresses), "")
    connection = Connection(OUTSIDE, address, port, request.speaks, request.server_name, request.offers)
    found = listener.chain(taking, connection)
    how = f" for {request.server_name}" if request.speaks is Speaks.TLS else ""
    told = f"from outside to {where}{how}: the listener {taking.name}"
    if found is None:
        walk.tell(Stage.LISTENER, f"{told}, and no server of it has that name", sources_of(taking.metadata))
        return walk.end(Kind.CLOSED, "no server has the name", detail="filter_chain_not_found")
    walk.tell(Stage.LISTENER, f"{told}, {_of(found)}", sources_of(taking.metadata))
    context = resources.opened(found.transport_socket.typed_config, DownstreamTlsContext)
    if context is not None and request.speaks is not Speaks.TLS:
        walk.tell(Stage.TLS, "the server speaks TLS, and this is none")
        return walk.end(Kind.CLOSED, "the TLS handshake fails", detail="tls_error")
    if context is not None:
        request = _opened(walk, context, request)
    return _filters(walk, resources, found, connection, request, send, cluster, encrypted=context is not None)


def _listening(resources: Resources, port: int) -> Listener | None:
    for each in resources.listeners.values():
        if each.address.socket_address.port_value == port:
            return each
    return None


def _of(found: FilterChain) -> str:
    names = ", ".join(found.filter_chain_match.server_names)
    return f"the server {found.name or 'there'}" + (f" that has {names}" if names else "")


def _opened(walk: Walk, context: DownstreamTlsContext, request: Request) -> Request:
    """What is inside of the TLS. HTTP/2 is taken by who offers it."""
    common = context.common_tls_context
    shown = ", ".join(each.name for each in common.tls_certificate_sds_secret_configs)
    asks = context.require_client_certificate.value
    checks = common.HasField("combined_validation_context")
    more = (
        ", and turns away who shows no certificate that it trusts"
        if asks
        else ", and looks at a certificate that is shown"
    )
    walk.tell(Stage.TLS, f"it ends the TLS with {shown}{more if asks or checks else ''}")
    http2 = "h2" in request.offers and "h2" in common.alpn_protocols
    spoken = Speaks.HTTP2 if http2 else Speaks.HTTP if request.offers else Speaks.BYTES
    return msgspec.structs.replace(request, speaks=spoken, server_name="", offers=())


def _filters(
    walk: Walk,
    resources: Resources,
    found: FilterChain,
    connection: Connection,
    request: Request,
    send: Send,
    cluster: Tcp,
    *,
    encrypted: bool,
) -> Verdict:
    seen = Seen(connection, headers=Headers())
    for each in found.filters:
        if (rules := resources.opened(each.typed_config, RBAC)) is not None:
            if why := rbac.denied(walk, rules, seen):
                return walk.end(Kind.CLOSED, "a policy denies the connection", detail=why)
        elif (asked := resources.opened(each.typed_config, ExtAuthz)) is not None:
            if matchers.metadata(asked.filter_enabled_metadata, seen.metadata):
                authorizer = asked.grpc_service.envoy_grpc.cluster_name
                walk.tell(Stage.POLICY, f"asks the authorizer {authorizer} about the connection")
                raise Unsure(f"the authorizer {authorizer} decides")
        elif (manager := resources.opened(each.typed_config, HttpConnectionManager)) is not None:
            if not request.is_http:
                walk.tell(Stage.LISTENER, "the server expects HTTP, which this is not")
                return walk.end(Kind.CLOSED, "the server expects HTTP", detail="http1.codec_error")
            seen.headers, seen.http2 = headers_of(request), request.speaks is Speaks.HTTP2
            seen.headers.set("x-forwarded-proto", "https" if encrypted else "http")
            if (refusal := _underscores(walk, manager, seen)) is not None:
                return refusal
            result = manage(walk, resources, manager, request, seen)
            return result if isinstance(result, Verdict) else send(connection, result, seen.headers, request)
        elif (proxy := resources.opened(each.typed_config, TcpProxy)) is not None:
            return send(connection, cluster(proxy), None, request)
    raise Unsure(f"the chain {found.name} ends nowhere")


def _underscores(walk: Walk, manager: HttpConnectionManager, seen: Seen) -> Verdict | None:
    rejects = manager.common_http_protocol_options.headers_with_underscores_action == HttpProtocolOptions.REJECT_REQUEST
    name = next((name for name, _ in seen.headers if "_" in name), "")
    if not rejects or not name:
        return None
    walk.tell(Stage.ROUTE, f"the header {name} has an underscore: an application may take it for another")
    version = "http2" if seen.http2 else "http1"
    why = "a header's name has an underscore"
    return walk.end(Kind.ANSWERED, why, status=400, detail=f"{version}.unexpected_underscore")
