"""Builds virtual hosts and route configurations. The virtual host of a service is built once per view and kept as
bytes. The route configuration of a port is those bytes joined, so that a changed VirtualService rebuilds only one
virtual host."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

import msgspec
from envoy.config.route.v3.route_components_pb2 import Route, RouteMatch
from envoy.config.route.v3.route_components_pb2 import VirtualHost as EnvoyVirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from weft.model.group import ProxyKind
from weft.model.names import Origin
from weft.model.proxy import TAKEN_PORTS
from weft.model.service import Protocol, ServicePort
from weft.model.settings import Settings
from weft.model.sidecar import Outbound, OutboundPolicy
from weft.model.virtual_service import Destination, HttpMatch, HttpRoute, VirtualService
from weft.translate import names
from weft.translate.actions import act, destination_port, plain, taking_part, wait
from weft.translate.built import Built, from_parts
from weft.translate.clusters import UpstreamHttp, upstream
from weft.translate.connects import with_connects
from weft.translate.contribution import VirtualHost
from weft.translate.delegates import DelegatedRoute, written_out
from weft.translate.domains import domains, virtual_addresses
from weft.translate.filters import enable, translate_grpc_web
from weft.translate.matches import applies, catches_all, route_match
from weft.translate.policy import effective
from weft.translate.provenance import keys, of_objects, of_route
from weft.translate.retries import with_replays
from weft.translate.view import ServiceView, deciding, speaking

_MESSAGE = RouteConfiguration.DESCRIPTOR.full_name
_CLOSED = OutboundPolicy.REGISTRY_ONLY
LARGEST_DIRECT_RESPONSE = 1 << 20


def stands_alone(view: ServiceView, port: ServicePort) -> bool:
    """Whether requests to a port arrive at listeners on the service's own addresses, and not at the listener that
    services on the port number share. That is so if the service has addresses or is headless, and either the port's
    protocol is undeclared or the proxy itself uses the port number. It is also so if routes of the Gateway API are
    attached to the service (`routed_by_address`). The port then has a route configuration of its own."""
    if port.protocol is Protocol.UNDECLARED or port.number in TAKEN_PORTS:
        return view.service is not None and bool(view.service.addresses or view.service.headless)
    return port.protocol.is_http and routed_by_address(view)


def routed_by_address(view: ServiceView) -> bool:
    """Whether the HTTP routes of a service apply to all requests to its addresses, as the Gateway API requires for
    routes that are attached to a Service, and not to requests that name its host. A headless service has no addresses
    of its own, so its routes apply by host."""
    routing = deciding(view)
    if routing is None or not routing.by_address or view.service is None or view.service.headless:
        return False
    return bool(virtual_addresses(view.service))


def configuration_name(view: ServiceView, port: ServicePort) -> str:
    """Return the name of the route configuration for a service port. HTTP ports with the same number share one, except
    for ports with listeners of their own (`stands_alone`)."""
    return f"{view.host}:{port.number}" if stands_alone(view, port) else str(port.number)


def virtual_host(view: ServiceView, port: ServicePort, settings: Settings) -> VirtualHost:
    if stands_alone(view, port):
        return host_of(view, port.number, ("*",), connects=not port.protocol.is_http or port.number in TAKEN_PORTS)
    return host_of(view, port.number, domains(view.host, view.service, view.caller.namespace, settings.domain))


def own_virtual_host(view: ServiceView, port: ServicePort, settings: Settings) -> VirtualHost:
    """Return the virtual host of a service port at a Sidecar's listener with an address of its own."""
    return host_of(view, port.number, domains(view.host, view.service, view.caller.namespace, settings.domain))


def unowned_host(view: ServiceView, port: int, settings: Settings) -> VirtualHost:
    """Return the virtual host, at a port, of a host that only a VirtualService defines, not a service. `port`: the
    called port, with which matches on ports are evaluated; 0 equals no port, so it drops all routes with such a
    match."""
    return host_of(view, port, domains(view.host, None, view.caller.namespace, settings.domain))


def host_of(view: ServiceView, port: int, claimed: tuple[str, ...], *, connects: bool = False) -> VirtualHost:
    """Return the virtual host of a view at a port, with the domains `claimed`. `connects`: forward CONNECT requests,
    because every CONNECT on the listener is for this service."""
    written = (origin for routing in speaking(view) for origin in routing.origins)
    sources = keys(*(view.service.origins if view.service else ()), *written)
    host = EnvoyVirtualHost(name=f"{view.host}:{port}", domains=claimed, include_request_attempt_count=True)
    host.metadata.CopyFrom(of_objects(sources))
    host.routes.extend(with_connects(routes(view, port)) if connects else routes(view, port))
    fragment: bytes = RouteConfiguration(virtual_hosts=[host]).SerializeToString(deterministic=True)
    return VirtualHost(host.name, fragment, sources, claimed, frozenset(domain.lower() for domain in claimed))


def routes(view: ServiceView, port: int) -> list[Route]:
    """Return the routes of a host at a port, in matching order, up to the first one that matches everything."""
    return [route for route, _ in routes_with_reasons(view, port)]


def routes_with_reasons(view: ServiceView, port: int) -> list[tuple[Route, Chosen | None]]:
    """Return the routes of a host at a port, as `routes` does, each with the configured route that it is made from;
    None for the route to the service itself. One configured route may become two routes (`with_replays`)."""
    result: list[tuple[Route, Chosen | None]] = [
        (route, each) for each in chosen(view, port) for route in _replayed(_route(each, view, port), each, view, port)
    ]
    # If no configured route applies to this caller and port, the service is called as without a VirtualService.
    unrouted = view.service is not None and view.caller.kind is not ProxyKind.GATEWAY
    if result or not unrouted:
        return result
    return [(route, None) for route in _replayed(_default(view, port), None, view, port)]


class Chosen(msgspec.Struct, frozen=True, eq=False):
    """A configured route (`resolved`, with delegates expanded) together with one of its matches that applies to the
    caller. `match`: that match; None for a route without matches. `envoys`: the same match, translated for Envoy."""

    resolved: DelegatedRoute
    match: HttpMatch | None
    envoys: RouteMatch


def chosen(view: ServiceView, port: int) -> list[Chosen]:
    """Return the configured routes that apply to this caller and port, in matching order. If several VirtualServices
    are merged, there may be several routes that match everything: only the first of them is kept, and it is moved to
    the end."""
    by_object = [_chosen(routing, view, port) for routing in speaking(view)]
    if len(by_object) < 2:
        return by_object[0] if by_object else []
    narrow = [each for entries in by_object for each in entries if not catches_all(each.envoys)]
    return narrow + [each for entries in by_object for each in entries if catches_all(each.envoys)][:1]


def _chosen(routing: VirtualService, view: ServiceView, port: int) -> list[Chosen]:
    result: list[Chosen] = []
    for resolved in written_out(routing, view.delegates)[0]:
        for match in resolved.route.match or (None,):
            if match is None or applies(match, view.caller, port):
                result.append(Chosen(resolved, match, route_match(match)))
                if catches_all(result[-1].envoys):
                    return result
    return result


def configuration(name: str, hosts: Sequence[VirtualHost], policy: Outbound) -> Built:
    """Join virtual hosts to a route configuration. If two virtual hosts have the same domain, the first one keeps it:
    Envoy would reject the whole configuration otherwise. If none has the domain `*`, a virtual host for unknown hosts
    is added; `policy` decides what it does, except at a gateway, where it responds 404. At a Sidecar's listener with an
    address of its own, a call has no other destination, so unknown hosts are rejected there."""
    fragments: list[bytes] = [_frame(name)]
    taken: set[str] = set().union(*(host.claims for host in hosts))
    if len(taken) == sum(len(host.claims) for host in hosts):
        fragments += [host.fragment for host in hosts]
    else:
        taken = set()
        for host in hosts:
            fragments.append(host.fragment if taken.isdisjoint(host.claims) else _without(host, taken))
            taken |= host.claims
    if "*" not in taken:
        allowed = policy if not names.is_own_listener(name) or isinstance(policy, Destination) else _CLOSED
        fragments.append(_nobody() if is_at_gateway(name) else _rest(allowed))
    sources = tuple(dict.fromkeys(chain.from_iterable(host.sources for host in hosts)))
    return from_parts(_MESSAGE, name, fragments, sources)


def _route(each: Chosen, view: ServiceView, port: int) -> Route:
    written: HttpRoute = each.resolved.route
    counted = each.match.stat_prefix if each.match else ""
    route = Route(name=_name(written, each.match), match=each.envoys, stat_prefix=counted)
    act(route, written, view, port)
    enable(route, written)
    if route.HasField("route") and _speaks_grpc_web(view, port):
        translate_grpc_web(route)
    route.metadata.CopyFrom(of_route(each.resolved.origins, written.line))
    return route


def _replayed(route: Route, each: Chosen | None, view: ServiceView, port: int) -> list[Route]:
    """Return [route], or a copy of the route that also retries idempotent methods on reset, followed by the route. The
    copy is added if retries are not configured and the service is called with HTTP/1, whose connections the server may
    close at any time. Connections between proxies need no such retries: HTTP/2 closes them in order. `each`: the
    configured route; None if the host has none."""
    if view.caller.kind is ProxyKind.GRPC or not route.HasField("route") or view.caller.retries is not None:
        return [route]
    if each is None:
        destinations: tuple[Destination, ...] = (Destination(view.host, port=port),)
    elif each.resolved.route.retries is None:
        destinations = tuple(entry.destination for entry in taking_part(each.resolved.route.route))
    else:
        return [route]
    return with_replays(route) if all(_by_http1(view, entry, port) for entry in destinations) else [route]


def _by_http1(view: ServiceView, destination: Destination, port: int) -> bool:
    number = destination_port(view, destination, port)
    called = next((entry for entry in view.service.ports if entry.number == number), None) if view.service else None
    if called is None or destination.host != view.host:
        return False
    subsets = view.rule.subsets if view.rule else ()
    subset = next((entry for entry in subsets if entry.name == destination.subset), None)
    spoken = upstream(view, called, effective(view.rule, number, subset))
    return spoken is UpstreamHttp.HTTP1 or (spoken is UpstreamHttp.AS_CALLED and number not in view.meshed)


def _name(written: HttpRoute, match: HttpMatch | None) -> str:
    return ".".join(name for name in (written.name, match.name if match else "") if name)


def _default(view: ServiceView, port: int) -> Route:
    route = Route(name="default", match=route_match(None), route=plain(view, port))
    if _speaks_grpc_web(view, port):
        translate_grpc_web(route)
    route.metadata.CopyFrom(of_route(_known(view.service.origin if view.service else None)))
    return route


def _speaks_grpc_web(view: ServiceView, port: int) -> bool:
    ports = view.service.ports if view.service is not None else ()
    return any(entry.number == port and entry.protocol is Protocol.GRPC_WEB for entry in ports)


def _known(origin: Origin | None) -> tuple[Origin, ...]:
    return () if origin is None else (origin,)


def is_at_gateway(name: str) -> bool:
    """Whether a name is that of a gateway's route configuration (`BoundServer.route_name`)."""
    return name.startswith(("http.", "https.")) and ":" not in name


@lru_cache(maxsize=4096)
def _frame(name: str) -> bytes:
    frame = RouteConfiguration(name=name, ignore_port_in_host_matching=True)
    frame.validate_clusters.value = False  # routes must not be rejected because a cluster arrives a moment later
    frame.max_direct_response_body_size_bytes.value = LARGEST_DIRECT_RESPONSE
    body: bytes = frame.SerializeToString(deterministic=True)
    return body


@lru_cache(maxsize=64)
def _rest(policy: Outbound) -> bytes:
    """Return the serialized virtual host for requests to unknown hosts: they go to their original destination or to an
    egress proxy, or get 502 as in Istio, depending on the outbound policy."""
    allowed = policy is not OutboundPolicy.REGISTRY_ONLY
    name = "allow_any" if allowed else "block_all"
    route = Route(name=name, match=route_match(None))
    if allowed:
        proxy = policy if isinstance(policy, Destination) else None
        cluster = names.outbound_cluster(proxy.host, proxy.port, proxy.subset) if proxy else names.PASSTHROUGH
        route.route.cluster = cluster
        wait(route.route, None)
    else:
        route.direct_response.status = 502
    host = EnvoyVirtualHost(name=name, domains=["*"], include_request_attempt_count=True, routes=[route])
    body: bytes = RouteConfiguration(virtual_hosts=[host]).SerializeToString(deterministic=True)
    return body


@lru_cache(maxsize=1)
def _nobody() -> bytes:
    """Return the serialized virtual host of a gateway for hosts that no server has: 404."""
    route = Route(name="nobody", match=route_match(None))
    route.direct_response.status = 404
    body: bytes = RouteConfiguration(
        virtual_hosts=[EnvoyVirtualHost(name="nobody", domains=["*"], routes=[route])]
    ).SerializeToString(deterministic=True)
    return body


def _without(host: VirtualHost, taken: set[str]) -> bytes:
    """Return the serialized virtual host without the domains that are taken; empty if no domain remains."""
    message = RouteConfiguration.FromString(host.fragment)
    left = [domain for domain in host.domains if domain.lower() not in taken]
    if not left:
        return b""
    message.virtual_hosts[0].domains[:] = left
    fragment: bytes = message.SerializeToString(deterministic=True)
    return fragment
