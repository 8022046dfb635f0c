"""`explain(request, world)` follows one hypothetical request from the caller's connection to the workload that receives
it, or to the decision that stops it. Each kind of decision (listener, route, cluster, TLS, policy) has its own module;
this module calls these modules in order."""

from __future__ import annotations

import msgspec
from envoy.config.core.v3.base_pb2 import TrafficDirection
from envoy.config.listener.v3.listener_components_pb2 import FilterChain
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import Route
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.set_filter_state.v3.set_filter_state_pb2 import Config as SetFilterState
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy

from weft.explain import listener, tls
from weft.explain.cluster import NoTarget, behind, by_weight, find, speaks_http2
from weft.explain.decision import DecisionStage, Explanation, Kind, Unsure, Verdict, sources_of
from weft.explain.endpoint import EndpointShare
from weft.explain.gateway import Send, enter, meet
from weft.explain.http import ForwardedRequest, manage
from weft.explain.inbound import Arrival, receive
from weft.explain.listener import IncomingConnection
from weft.explain.request import Request, RequestHeaders, Speaks, headers_of
from weft.explain.rule import GuardInput
from weft.explain.walk import Walk, every
from weft.explain.world import EnvoyResources, ExplainedWorkload, NoPort, World

_ITSELF = {"localhost": ("127.0.0.1",)}  # no mesh defines this name; every machine resolves it to loopback
_OFFERS = "envoy.network.application_protocols"
# The retry conditions that cover a failed connection, which Envoy counts as a reset and as a 5xx.
_UNCONNECTED = frozenset({"connect-failure", "reset", "reset-before-request", "5xx", "gateway-error"})
# Response flag -> the retry conditions that cover a response with this flag.
_TRIED_AGAIN = {"UF": _UNCONNECTED, "UPE": frozenset({"reset", "5xx", "gateway-error"})}


def explain(request: Request, world: World) -> Explanation:
    return every(lambda walk: _journey(walk, request, world))


def _journey(walk: Walk, request: Request, world: World) -> Verdict:
    caller = world.workload(request.caller) or ExplainedWorkload(request.caller)
    walk.proxy = caller.name
    if caller.doors is not None and caller.resources is not None:
        return _through(walk, request, world, caller, caller.resources)
    address = request.address
    if not address:
        addresses = world.resolve(request.host, caller) or _ITSELF.get(request.host.lower(), ())
        if not addresses:
            walk.tell(DecisionStage.NAME, f"no service has the name {request.host}")
            return walk.end(Kind.FAILED, f"{request.host} does not resolve")
        address = addresses[0]
        others = f", the first of {len(addresses)}" if len(addresses) > 1 else ""
        walk.tell(DecisionStage.NAME, f"{request.host} resolves to {address}{others}")
    source = next(iter(caller.addresses), "127.0.0.1")
    spoken = _spoken(headers_of(request), request.speaks) if request.is_http else request.speaks
    connection = IncomingConnection(source, address, request.port, spoken, request.server_name, request.offers)
    if caller.resources is not None and world.intercepts(caller, address, request.port, inbound=False):
        return _Outbound(walk, request, world, caller, caller.resources).go(connection)
    if caller.resources is not None and _is_own(address, caller):
        taking = listener.bound(caller.resources, connection, TrafficDirection.OUTBOUND)
        if taking is not None:
            return _Outbound(walk, request, world, caller, caller.resources).take(taking, connection)
    named = caller.name or "the caller"
    why = f"{named} has no proxy" if caller.resources is None else f"the proxy of {named} does not intercept this call"
    walk.tell(DecisionStage.LISTENER, f"{why}: {named} connects directly to {address}:{request.port}")
    headers = headers_of(request) if request.is_http else None
    if (lacking := world.no_port(address, request.port)) is not None:
        return _no_port(walk, lacking, None)
    place = behind(walk, world, address, request.port)
    if place is None:
        return walk.end(Kind.CLOSED, "the connection is refused")
    server = world.at(place.address)
    if server is None and _is_loopback(address):
        walk.tell(DecisionStage.ENDPOINT, f"{address} is {named} itself: no proxy handles the call")
        return walk.end(Kind.PASSED_ON, f"the call stays in {named}", headers=headers)
    if server is None:
        return _passed_on(walk, place.address, place.port, headers)
    connection = msgspec.structs.replace(connection, address=place.address, port=place.port)
    return _arrive(walk, server, Arrival(connection, headers, request.speaks is Speaks.HTTP2), request, world)


def _is_own(address: str, workload: ExplainedWorkload) -> bool:
    return _is_loopback(address) or address in workload.addresses


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _through(
    walk: Walk, request: Request, world: World, gateway: ExplainedWorkload, resources: EnvoyResources
) -> Verdict:
    """Returns the verdict of a request from an external client to the gateway. A gateway makes no calls itself: if a
    gateway is given as the caller of a request, the request is explained as one that enters the mesh through this
    gateway."""
    send = _onward(walk, world, gateway, resources)
    return enter(walk, request, gateway, send, lambda proxy: _tcp_cluster(walk, proxy))


def _arrive(walk: Walk, server: ExplainedWorkload, arrival: Arrival, request: Request, world: World) -> Verdict:
    if server.doors is None or server.resources is None:
        return receive(walk, server, arrival, request, world)
    send = _onward(walk, world, server, server.resources)
    return meet(walk, server, arrival, request, send, lambda proxy: _tcp_cluster(walk, proxy))


def _onward(walk: Walk, world: World, gateway: ExplainedWorkload, resources: EnvoyResources) -> Send:
    """Returns the function that predicts what happens to requests and connections that the gateway forwards. The
    connection that the gateway opens has the gateway's own source address."""

    def send(
        connection: IncomingConnection,
        to: str | ForwardedRequest,
        headers: RequestHeaders | None,
        inner: Request,
        sealed: Arrival | None = None,
    ) -> Verdict:
        outbound = _Outbound(walk, inner, world, gateway, resources)
        own = msgspec.structs.replace(connection, source=next(iter(gateway.addresses), connection.source))
        if sealed is not None and isinstance(to, str):
            return outbound.pass_on(own, to, sealed)
        if isinstance(to, ForwardedRequest):
            return _after_retries(outbound.send(own, to.cluster, headers, ()), to.route)
        return outbound.send(own, to, headers, ())

    return send


class _Outbound:
    """Predicts the outbound side of a caller's proxy: which listener and filter chain match a connection, to which
    endpoint the proxy forwards it, and what happens at that endpoint."""

    def __init__(
        self, walk: Walk, request: Request, world: World, caller: ExplainedWorkload, resources: EnvoyResources
    ) -> None:
        self._walk, self._request, self._world = walk, request, world
        self._caller, self._resources = caller, resources

    def go(self, connection: IncomingConnection) -> Verdict:
        return self.take(listener.outbound(self._resources, connection), connection)

    def take(self, taking: Listener | None, connection: IncomingConnection) -> Verdict:
        walk, resources = self._walk, self._resources
        if taking is None:
            raise Unsure(f"{self._caller.name} has no outbound listener")
        chain = listener.chain(taking, connection)
        where = f"the listener {taking.name} accepts {connection.address}:{connection.port}"
        if chain is None:
            walk.tell(
                DecisionStage.LISTENER, f"{where}, but none of its filter chains matches", sources_of(taking.metadata)
            )
            return walk.end(Kind.CLOSED, "no filter chain matches", detail="filter_chain_not_found")
        walk.tell(
            DecisionStage.LISTENER, f"{where}, filter chain {chain.name or _end(chain)}", sources_of(taking.metadata)
        )
        offers: tuple[str, ...] = ()
        for each in chain.filters:
            if (state := resources.opened(each.typed_config, SetFilterState)) is not None:
                offers = _offers(state) or offers
            elif (manager := resources.opened(each.typed_config, HttpConnectionManager)) is not None:
                http2 = self._request.speaks is Speaks.HTTP2
                seen = GuardInput(connection, headers=headers_of(self._request), http2=http2)
                result = manage(walk, resources, manager, self._request, seen)
                if isinstance(result, Verdict):
                    return result
                return _after_retries(self.send(connection, result.cluster, seen.headers, offers), result.route)
            elif (proxy := resources.opened(each.typed_config, TcpProxy)) is not None:
                if proxy.HasField("on_demand"):
                    return self._hold(connection)
                if proxy.HasField("tunneling_config"):
                    return self._tunnel(connection, _tcp_cluster(walk, proxy), proxy.tunneling_config, offers)
                return self.send(connection, _tcp_cluster(walk, proxy), None, offers)
        raise Unsure(f"the filter chain {chain.name} has no terminal filter")

    def _tunnel(
        self, connection: IncomingConnection, cluster: str, tunnel: TcpProxy.TunnelingConfig, offers: tuple[str, ...]
    ) -> Verdict:
        """Returns the verdict of a connection that the proxy tunnels in a CONNECT or POST request to an endpoint of the
        cluster. That endpoint is expected to forward the connection to its destination. If the request does not reach
        the endpoint, the verdict is that the application's connection is closed: the application sees no HTTP status.
        `offers`: as for `send`."""
        walk, method = self._walk, "POST" if tunnel.use_post else "CONNECT"
        walk.tell(DecisionStage.FILTER, f"the connection is tunneled in a {method} request to {tunnel.hostname}")
        asking = Request(tunnel.hostname, connection.port, method, caller=self._request.caller)
        outbound = _Outbound(walk, asking, self._world, self._caller, self._resources)
        verdict = outbound.send(connection, cluster, headers_of(asking), offers)
        if verdict.kind in (Kind.DELIVERED, Kind.PASSED_ON):
            why = f"the connection continues to {tunnel.hostname}, if {walk.endpoint} forwards it"
            return walk.end(Kind.PASSED_ON, why)
        return msgspec.structs.replace(verdict, kind=Kind.CLOSED, status=0)

    def _hold(self, connection: IncomingConnection) -> Verdict:
        """Returns the verdict of a connection that the proxy holds until the control plane has sent the config for
        its destination: matches the listeners again, in the config that the proxy has then. If the connection was
        held already and still no listener for its destination exists, the listener for unknown destinations
        handles it."""
        if connection.held:
            return self.take(self._resources.listeners.get(listener.UNKNOWN), connection)
        where = f"{connection.address}:{connection.port}"
        if self._world.is_shown(self._caller, connection.address, connection.port):
            reason = f"{where} has not been called yet: the call is held until the proxy gets the config for {where}"
        elif self._world.unseen(self._caller, connection.address, connection.port) is not None:
            reason = (
                f"{where} belongs to no service visible to this proxy: the call is held until the control plane answers"
            )
        else:
            reason = f"{where} belongs to no service: the call is held until the control plane answers"
        self._walk.tell(DecisionStage.LISTENER, f"{reason} ({self._world.on_demand(self._caller)})")
        self._resources = self._world.after_call(self._caller, connection.address)
        return self.go(msgspec.structs.replace(connection, held=True))

    def pass_on(self, connection: IncomingConnection, cluster: str, sealed: Arrival) -> Verdict:
        """Returns the verdict of a connection that carries the TLS of another proxy and that this proxy forwards to an
        endpoint of the cluster without terminating that TLS. `connection`: the forwarded connection, whose source is
        this proxy. `sealed`: the connection as it arrived here, with the TLS of the other proxy."""
        walk = self._walk
        target = find(walk, self._resources, cluster, connection, self._caller, self._world)
        if isinstance(target, NoTarget):
            return walk.end(Kind.CLOSED, target.why, flags=target.flags, detail=target.detail)
        place, server = target.place, target.workload
        around = tls.offer(walk, self._resources, target.cluster, place, (), self._caller.identity)
        if around is not None and around.foreign:
            return _in_another(walk, around, place)
        if server is None:
            where = f"{place.address}:{place.port}"
            raise Unsure(f"{where} gets the TLS of the caller's proxy unchanged, and decides whether to accept it")
        if around is None:
            arriving = msgspec.structs.replace(
                sealed.connection, source=connection.source, address=place.address, port=place.port
            )
            arrived = msgspec.structs.replace(sealed, connection=arriving)
            return _arrive(walk, server, arrived, self._request, self._world)
        arriving = IncomingConnection(
            connection.source, place.address, place.port, Speaks.TLS, around.server_name, around.offers
        )
        result = _arrive(walk, server, Arrival(arriving, None, offer=around), self._request, self._world)
        if result.kind is not Kind.DELIVERED:
            return result
        walk.tell(
            DecisionStage.TLS,
            f"the connection is TLS inside TLS: {server.name} terminates the outer TLS, and no proxy the inner TLS",
        )
        return walk.end(Kind.CLOSED, "the TLS handshake fails", flags="UF", detail="tls_error")

    def send(
        self, connection: IncomingConnection, cluster: str, headers: RequestHeaders | None, offers: tuple[str, ...]
    ) -> Verdict:
        """Predict what happens to a request that the proxy forwards to an endpoint of `cluster`, and return the
        verdict. `headers`: None for a connection that the proxy forwards as TCP. `offers`: the ALPN protocols
        that the filter chain sets for TLS to the endpoint; empty for those of the cluster's TLS context."""
        walk, request = self._walk, self._request
        host = headers.value(":authority") if headers is not None else ""
        target = find(walk, self._resources, cluster, connection, self._caller, self._world, host)
        if isinstance(target, NoTarget):
            return _failed(walk, headers, target.why, target.flags, target.detail)
        place, server = target.place, target.workload
        client_tls = tls.offer(walk, self._resources, target.cluster, place, offers, self._caller.identity)
        if server is None and (lacking := self._world.no_port(place.address, place.port)) is not None:
            return _no_port(walk, lacking, headers)
        if server is None:
            if (unseen := self._world.unseen(self._caller, place.address, place.port)) is not None:
                walk.tell(DecisionStage.ENDPOINT, unseen.why, unseen.sources)
            sent = behind(walk, self._world, place.address, place.port)
            if sent is None:
                return _failed(
                    walk, headers, "the service has no endpoints", "UF", "upstream_reset_before_response_started"
                )
            place, server = sent, self._world.at(sent.address)
        if client_tls is not None and client_tls.foreign and headers is None and request.speaks is Speaks.TLS:
            return _in_another(walk, client_tls, place)
        if server is None:
            return _passed_on(walk, place.address, place.port, headers)
        read = server.resources is not None and self._world.intercepts(server, place.address, place.port, inbound=True)
        if read and tls.announces(self._resources, target.cluster, place):
            raise Unsure(f"the proxy of {server.name} does not read PROXY headers, so the result cannot be predicted")
        if client_tls is not None and client_tls.foreign:
            raise Unsure(f"it is unknown whether {server.name} presents a certificate that the caller's proxy trusts")
        http2 = request.speaks is Speaks.HTTP2
        if headers is not None:
            http2 = speaks_http2(self._resources, target.cluster, request.speaks)
        if client_tls is not None:
            arriving = IncomingConnection(
                connection.source, place.address, place.port, Speaks.TLS, client_tls.server_name, client_tls.offers
            )
        else:
            spoken = request.speaks if headers is None else _spoken(headers, Speaks.HTTP2 if http2 else Speaks.HTTP)
            arriving = IncomingConnection(
                connection.source, place.address, place.port, spoken, connection.server_name, connection.offers
            )
        inner = headers if headers is not None else headers_of(request) if request.is_http else None
        was_grpc = walk.grpc
        result = _arrive(walk, server, Arrival(arriving, inner, http2, client_tls), request, self._world)
        if result.kind is Kind.CLOSED and headers is not None:
            walk.grpc = was_grpc  # restores what the server's proxy may have changed
            return _failed(walk, headers, result.why, result.flags, "upstream_reset_before_response_started")
        return result


def _spoken(headers: RequestHeaders, meant: Speaks) -> Speaks:
    """The protocol that listener filters detect in the first bytes of a connection: `meant`, the protocol in which
    the caller's proxy sends the request, or BYTES for an HTTP/1 request whose path does not begin with `/` or
    `*`. HTTP/2 is always detected, by its preface."""
    recognized = meant is Speaks.HTTP2 or headers.value(":path")[:1] in ("/", "*")
    return meant if recognized else Speaks.BYTES


def _failed(walk: Walk, headers: RequestHeaders | None, why: str, flags: str, detail: str) -> Verdict:
    """The verdict when the connection from the caller's proxy to the next proxy fails: 502 or 503 for HTTP, a closed
    connection for TCP (`headers` is None). `why`: the reason as text. `flags` and `detail`: Envoy's response flags and
    response_code_details."""
    if headers is None:
        return walk.end(Kind.CLOSED, why, flags=flags, detail=detail)
    flags = flags.removeprefix("DI,")
    return walk.end(Kind.FAILED, why, status=502 if flags == "UPE" else 503, flags=flags, detail=detail)


def _no_port(walk: Walk, lacking: NoPort, headers: RequestHeaders | None) -> Verdict:
    """The verdict of a call to a port that the service does not have (`lacking`: the reason): 503 from the caller's
    proxy for HTTP, a reset for TCP (`headers` is None)."""
    walk.tell(DecisionStage.ENDPOINT, lacking.why, lacking.sources)
    if headers is None:
        return walk.end(Kind.FAILED, lacking.why)
    detail = "upstream_reset_before_response_started"
    return walk.end(Kind.FAILED, lacking.why, status=503, flags="UF", detail=detail)


def _in_another(walk: Walk, client_tls: tls.Offer, place: EndpointShare) -> Verdict:
    """The verdict of a connection to the endpoint `place` that is TLS already and that the cluster wraps in a second
    TLS (`client_tls`): the connection is closed, because the server expects no TLS inside the TLS that it
    terminates."""
    what = f"the connection is already TLS, and the proxy adds TLS: {place.address}:{place.port} gets TLS inside TLS"
    walk.tell(DecisionStage.TLS, what, client_tls.sources)
    return walk.end(
        Kind.CLOSED, "the caller's TLS handshake fails: the server that terminates the outer TLS expects no TLS inside"
    )


def _passed_on(walk: Walk, address: str, port: int, headers: RequestHeaders | None) -> Verdict:
    where = f"{address}:{port}" if port else address
    walk.tell(DecisionStage.ENDPOINT, f"{where} is unknown to the mesh")
    return walk.end(Kind.PASSED_ON, f"the call continues to {where}", headers=headers)


def _after_retries(verdict: Verdict, route: Route) -> Verdict:
    """Returns the verdict of a request that `route` forwarded. If `verdict` is a failure that the route retries, the
    response flag URX (retry limit exceeded) is added, because all retries are assumed to fail as well."""
    policy, flag = route.route.retry_policy, verdict.flags.rpartition(",")[2]
    reasons = _TRIED_AGAIN.get(flag, frozenset())
    if not policy.num_retries.value or not reasons & {*policy.retry_on.split(",")}:
        return verdict
    return msgspec.structs.replace(verdict, flags=verdict.flags.replace(flag, f"URX,{flag}"))


def _tcp_cluster(walk: Walk, proxy: TcpProxy) -> str:
    if proxy.WhichOneof("cluster_specifier") == "cluster":
        return str(proxy.cluster)
    parts = proxy.weighted_clusters.clusters
    chosen, weight = by_weight(walk, parts, lambda part: part.weight)
    total = sum(part.weight for part in parts)
    walk.tell(DecisionStage.ROUTE, f"by weight {weight} of {total} the connection goes to {chosen.name}")
    return str(chosen.name)


def _offers(state: SetFilterState) -> tuple[str, ...]:
    for value in state.on_new_connection:
        if value.object_key == _OFFERS:
            return tuple(value.format_string.text_format_source.inline_string.split(","))
    return ()


def _end(chain: FilterChain) -> str:
    return "for HTTP" if any(each.name.endswith("http_connection_manager") for each in chain.filters) else "for TCP"
