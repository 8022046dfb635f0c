"""The virtual host of a name at a gateway: the merged routes of all VirtualServices that are bound to it. Independent
of TLS and of ports to bind."""

from __future__ import annotations

import msgspec
from envoy.config.route.v3.route_components_pb2 import Route
from envoy.config.route.v3.route_components_pb2 import VirtualHost as EnvoyVirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from weft.model.edge import ServedName
from weft.translate.contribution import VirtualHost
from weft.translate.matches import route_match
from weft.translate.provenance import keys, of_objects
from weft.translate.routes import routes
from weft.translate.view import ServiceView

# Connections buffer little; a request that may be retried or mirrored must be buffered whole.
_KEPT_BODY = 1 << 20


def virtual_host(view: ServiceView, door: ServedName) -> VirtualHost:
    sources = keys(*(routing.origin for routing in door.routes))
    # A name with a trailing dot is the same name, and must not go to the catch-all host.
    claimed = (view.host,) if view.host == "*" else (view.host, f"{view.host}.")
    host = EnvoyVirtualHost(name=f"{view.host}:{door.port}", domains=claimed)
    if door.misdirected:
        host.routes.append(_elsewhere())
    else:
        host.include_request_attempt_count = True
        host.request_body_buffer_limit.value = _KEPT_BODY
        if door.redirects:
            host.require_tls = EnvoyVirtualHost.ALL
        host.metadata.CopyFrom(of_objects(sources))
        host.routes.extend(routes(through(view, door), door.port))
    fragment: bytes = RouteConfiguration(virtual_hosts=[host]).SerializeToString(deterministic=True)
    return VirtualHost(host.name, fragment, sources, claimed, frozenset(domain.lower() for domain in claimed))


def _elsewhere() -> Route:
    """421 (Misdirected Request), upon which a browser retries on a connection for that name."""
    result = Route(name="misdirected", match=route_match(None))
    result.direct_response.status = 421
    return result


def through(view: ServiceView, door: ServedName) -> ServiceView:
    """The view of the host at one of several doors (gateway server and port)."""
    caller = msgspec.structs.replace(view.caller, gateways=door.gateways, encrypted=door.encrypted)
    return msgspec.structs.replace(view, caller=caller, routes=door.routes)
