"""What a gateway gets: what a host adds to it, and what it has by itself. `service.py` hands over here by the kind of
proxy. Rule: a gateway has no more than its routes name; clusters are those of everybody else."""

from __future__ import annotations

from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.translate import clusters, gateway_listeners, gateway_routes, gateway_tls, request_authentication
from weft.translate.contribution import Contribution, VirtualHost
from weft.translate.view import GroupView, ServiceView


def contribute(view: ServiceView, settings: Settings) -> Contribution:
    """The clusters of a host that routes lead to, and the virtual hosts of one that is answered for."""
    return Contribution(
        clusters=tuple(
            made
            for port in view.ports
            if port.protocol is not Protocol.UDP
            for made in clusters.outbound(view, port, settings)
        ),
        hosts=tuple((door.route_name, gateway_routes.virtual_host(view, door)) for door in view.doors),
    )


def base(view: GroupView) -> Contribution:
    """Its listeners, with what they show. Route configurations are there before anybody adds to them, so that a server
    without routes answers, too."""
    named = dict.fromkeys(each.bound.route_name for each in view.servers if each.bound.server.is_http)
    return Contribution(
        clusters=(
            *clusters.nowhere(view.settings),
            *gateway_tls.secrets(view),
            *request_authentication.clusters(view),
        ),
        listeners=gateway_listeners.listeners(view),
        hosts=tuple((name, VirtualHost("", b"")) for name in named),
    )
