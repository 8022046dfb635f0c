"""Builds the config of a gateway: the contribution of one host, and the gateway's own listeners. `service.py` calls
this module for gateways. Rule: a gateway has only the clusters that its routes name, and these are equal to the same
clusters of other proxies."""

from __future__ import annotations

from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.translate import clusters, gateway_listeners, gateway_routes, gateway_tls, request_authentication
from weft.translate.contribution import Contribution, VirtualHost
from weft.translate.view import GroupView, ServiceView


def contribute(view: ServiceView, settings: Settings) -> Contribution:
    """Return the clusters of a host, if routes lead to it, and its virtual hosts, if the gateway serves it."""
    return Contribution(
        clusters=tuple(
            cluster
            for port in view.ports
            if port.protocol is not Protocol.UDP
            for cluster in clusters.outbound(view, port, settings)
        ),
        hosts=tuple((door.route_name, gateway_routes.virtual_host(view, door)) for door in view.doors),
    )


def base(view: GroupView) -> Contribution:
    """Return the listeners of a gateway with their certificates, and its route configurations. A route configuration
    exists even without virtual hosts, so that a server without routes still responds."""
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
