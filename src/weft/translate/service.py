"""Translates views to contributions: `contribute` returns the part of a group's config that comes from one host, `base`
the part that needs no service. `control/push/contribute.py` calls both. They are pure functions: equal views give
equal contributions."""

from __future__ import annotations

import msgspec

from weft.model.group import ProxyKind
from weft.model.proxy import TAKEN_PORTS
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.translate import clusters, gateway, gateway_tls, grpc, hold, listeners, request_authentication, routes
from weft.translate.built import Built
from weft.translate.contribution import EVERY_ROUTE, Chain, Contribution, VirtualHost
from weft.translate.inbound import bound_inbound, virtual_inbound
from weft.translate.view import GroupView, ServiceView, deciding

_HTTP_PORT = 80  # port of a host without a service, used by destinations without a port


def contribute(view: ServiceView, settings: Settings) -> Contribution:
    """Return the clusters, listeners and virtual hosts of one host as one group sees it. The shared listeners of HTTP
    ports are not among them: the function that calls this one must add `listeners.http_port` for every route
    configuration whose name is a port number."""
    if view.caller.kind is ProxyKind.GRPC:
        return grpc.contribute(view, settings)
    if view.caller.kind is ProxyKind.GATEWAY:
        return gateway.contribute(view, settings)
    if view.service is None:
        return _unowned(view, settings)
    own_clusters: list[Built] = []
    own_listeners: list[Built] = []
    hosts: list[tuple[str, VirtualHost]] = []
    chains: list[tuple[int, Chain]] = []
    addressed: set[str] = set()
    for port in view.behind:
        own_clusters += clusters.outbound(view, port, settings) if port.protocol is not Protocol.UDP else ()
    for own in view.own:
        if own.port.protocol is Protocol.UDP:
            continue
        if own.port.number not in {port.number for port in (*view.ports, *view.behind)}:
            own_clusters += clusters.outbound(view, own.port, settings)
        own_listeners.append(listeners.own_listener(view, own, settings))
        if not own.port.protocol.is_tcp:
            hosts.append((own_listeners[-1].name, routes.own_virtual_host(view, own.port, settings)))
    if not view.ports and not view.own:  # the service is hidden from these callers
        called = _unowned(msgspec.structs.replace(view, service=None), settings)
        return msgspec.structs.replace(called, clusters=tuple(own_clusters))
    for port in view.ports:
        if port.protocol is Protocol.UDP:
            continue
        own_clusters += clusters.outbound(view, port, settings)
        at_addresses = listeners.own_addresses(view, port, settings)
        if at_addresses and listeners.shares_port(view, port):
            addressed.add(routes.configuration_name(view, port))
        own_listeners += at_addresses
        chains += ((port.number, chain) for chain in listeners.chains_without_address(view, port, settings))
        unreachable = port.number in TAKEN_PORTS and not routes.stands_alone(view, port)
        if not port.protocol.is_tcp and not unreachable:
            hosts.append((routes.configuration_name(view, port), routes.virtual_host(view, port, settings)))
    return Contribution(tuple(own_clusters), tuple(own_listeners), tuple(hosts), tuple(chains), frozenset(addressed))


def base(view: GroupView) -> Contribution:
    """Return the config of a group that needs no service: its inbound and outbound listeners, and the clusters of its
    own ports."""
    if view.kind is ProxyKind.GRPC:
        return Contribution()
    if view.kind is ProxyKind.GATEWAY:
        return gateway.base(view)
    inbound = tuple(cluster for port in view.inbound for cluster in clusters.inbound(port, view.settings))
    return Contribution(
        clusters=(
            *clusters.fixed(view.settings),
            *inbound,
            *request_authentication.clusters(view),
            *gateway_tls.workload_secrets(view),
        ),
        listeners=(
            listeners.virtual_outbound(view.policy, view.settings, view.telling.ranges),
            virtual_inbound(view),
            *bound_inbound(view),
            *(hold.listeners(listeners.rest(view.policy), view.settings) if view.telling.held else ()),
        ),
    )


def _unowned(view: ServiceView, settings: Settings) -> Contribution:
    """Return the virtual hosts of a host that only a VirtualService defines; empty if none of its VirtualServices has
    HTTP routes. Such a host exists on every HTTP port: one virtual host is for all ports (`EVERY_ROUTE`). If a match of
    the routes names a port, that port has a separate virtual host, which must precede the one for all ports."""
    routing = deciding(view)
    if routing is None:
        return Contribution()
    named = sorted({match.port for route in routing.http for match in route.match if match.port})
    return Contribution(
        hosts=(
            *((str(port), routes.unowned_host(view, port, settings)) for port in named),
            (EVERY_ROUTE, routes.unowned_host(view, _HTTP_PORT if _HTTP_PORT not in named else 0, settings)),
        )
    )
