"""Builds the virtual host of a name that a gateway serves, with the merged routes of all VirtualServices that are bound
to the gateway and apply to this name. The result does not depend on TLS settings or on the ports that the gateway
binds."""

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

# Bytes. Connections of a gateway buffer little, but a request that may be retried or mirrored must be buffered whole.
_KEPT_BODY = 1 << 20


def virtual_host(view: ServiceView, door: ServedName) -> VirtualHost:
    sources = keys(*(routing.origin for routing in door.routes))
    # A name with a trailing dot is the same name; without it, such requests would match the catch-all virtual host.
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
    """Return the route of a host that the connection's server does not serve: it responds 421 (Misdirected Request),
    after which a browser retries on a new connection for that host."""
    result = Route(name="misdirected", match=route_match(None))
    result.direct_response.status = 421
    return result


def through(view: ServiceView, door: ServedName) -> ServiceView:
    """Return the view of a host as one server and port of a gateway serves it: with only the gateways and routes of
    that server and port. `door`: the host at that server and port (not the socket that is called a door elsewhere)."""
    caller = msgspec.structs.replace(view.caller, gateways=door.gateways, encrypted=door.encrypted)
    return msgspec.structs.replace(view, caller=caller, routes=door.routes)
