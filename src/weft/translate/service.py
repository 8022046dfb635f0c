"""The two functions that `control/push/contribute.py` calls: the contribution of a service to a group's config, and the
base config of the group. Both are pure: equal views give equal contributions."""

from __future__ import annotations

import msgspec

from weft.model.group import ProxyKind
from weft.model.proxy import TAKEN_PORTS
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.translate import clusters, gateway, grpc, hold, listeners, request_authentication, routes
from weft.translate.built import Built
from weft.translate.contribution import EVERY_ROUTE, Chain, Contribution, VirtualHost
from weft.translate.inbound import virtual_inbound
from weft.translate.view import GroupView, ServiceView, deciding

_HTTP_PORT = 80  # port of a host without a service, for destinations without a port


def contribute(view: ServiceView, settings: Settings) -> Contribution:
    """Clusters, listeners and virtual hosts of one host for one caller. The listener of an HTTP port is not among them:
    it is `listeners.http_port` for every route configuration that is named by a port."""
    if view.caller.kind is ProxyKind.GRPC:
        return grpc.contribute(view, settings)
    if view.caller.kind is ProxyKind.GATEWAY:
        return gateway.contribute(view, settings)
    if view.service is None:
        return _unowned(view, settings)
    made: list[Built] = []
    own: list[Built] = []
    hosts: list[tuple[str, VirtualHost]] = []
    chains: list[tuple[int, Chain]] = []
    addressed: set[str] = set()
    for port in view.behind:
        made += clusters.outbound(view, port, settings) if port.protocol is not Protocol.UDP else ()
    if not view.ports:  # hidden from its callers
        called = _unowned(msgspec.structs.replace(view, service=None), settings)
        return msgspec.structs.replace(called, clusters=tuple(made))
    for port in view.ports:
        if port.protocol is Protocol.UDP:
            continue
        made += clusters.outbound(view, port, settings)
        at_addresses = listeners.own_addresses(view, port, settings)
        if at_addresses and listeners.shares_port(view, port):
            addressed.add(routes.configuration_name(view, port))
        own += at_addresses
        chains += ((port.number, chain) for chain in listeners.chains_without_address(view, port, settings))
        unreachable = port.number in TAKEN_PORTS and not routes.stands_alone(view, port)
        if not port.protocol.is_tcp and not unreachable:
            hosts.append((routes.configuration_name(view, port), routes.virtual_host(view, port, settings)))
    return Contribution(tuple(made), tuple(own), tuple(hosts), tuple(chains), frozenset(addressed))


def base(view: GroupView) -> Contribution:
    """The config of a group without any service: inbound and outbound listeners, and clusters of its own ports."""
    if view.kind is ProxyKind.GRPC:
        return Contribution()
    if view.kind is ProxyKind.GATEWAY:
        return gateway.base(view)
    inbound = tuple(made for port in view.inbound for made in clusters.inbound(port, view.settings))
    return Contribution(
        clusters=(*clusters.fixed(view.settings), *inbound, *request_authentication.clusters(view)),
        listeners=(
            listeners.virtual_outbound(view.policy, view.settings, view.telling.ranges),
            virtual_inbound(view),
            *(hold.listeners(listeners.rest(view.policy), view.settings) if view.telling.held else ()),
        ),
    )


def _unowned(view: ServiceView, settings: Settings) -> Contribution:
    """A host that only a VirtualService defines exists on every HTTP port. Ports that a match names have their own
    virtual host, which must come before the one for every port."""
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
