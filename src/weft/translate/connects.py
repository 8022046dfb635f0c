"""Adds routes for CONNECT requests, which a sidecar forwards to an application that is itself a proxy. A CONNECT
request has no path, and its authority is the destination of the tunnel, not the called service. So CONNECT is
forwarded only where the connection alone identifies the service: at a listener for a single service, and inbound.

Rule: filters cannot read the requests inside a tunnel. Where policies check requests, CONNECT is not forwarded.
"""

from __future__ import annotations

from collections.abc import Iterable

from envoy.config.route.v3.route_components_pb2 import Route, RouteMatch

CONNECT = "CONNECT"


def with_connects(routes: Iterable[Route]) -> list[Route]:
    """Return the routes, preceded by a copy for CONNECT of each route that matches every path. The copy has the same
    conditions on headers."""
    written = list(routes)
    return [*(_for_connect(route) for route in written if _takes_connect(route)), *written]


def _takes_connect(route: Route) -> bool:
    match = route.match
    return (
        route.HasField("route")
        and match.HasField("prefix")
        and match.prefix in ("", "/")
        and not match.query_parameters
        and all(header.name != ":method" or header.string_match.exact == CONNECT for header in match.headers)
    )


def _for_connect(route: Route) -> Route:
    result = Route()
    result.CopyFrom(route)
    result.match.CopyFrom(RouteMatch(headers=route.match.headers, dynamic_metadata=route.match.dynamic_metadata))
    result.match.connect_matcher.SetInParent()
    result.route.upgrade_configs.add(upgrade_type=CONNECT)
    for about_paths in ("prefix_rewrite", "regex_rewrite", "path_rewrite_policy", "host_rewrite_literal"):
        result.route.ClearField(about_paths)
    return result
