"""CONNECT requests, which a sidecar forwards to an application that is itself a proxy. A CONNECT has no path, and its
authority is the destination of the tunnel, not the service that is called. So it is forwarded only where the connection
alone identifies the service: at a listener of one service, and inbound.

Rule: filters do not see inside a tunnel. Where policies check requests, CONNECT is not forwarded at all.
"""

from __future__ import annotations

from collections.abc import Iterable

from envoy.config.route.v3.route_components_pb2 import Route, RouteMatch

CONNECT = "CONNECT"


def with_connects(routes: Iterable[Route]) -> list[Route]:
    """Each route that matches every path also matches CONNECT, under the same conditions."""
    written = list(routes)
    return [*(_for_connect(route) for route in written if _takes_connect(route)), *written]


def _takes_connect(route: Route) -> bool:
    match = route.match
    return (
        route.HasField("route")
        and match.prefix == "/"
        and not match.query_parameters
        and all(header.name != ":method" or header.string_match.exact == CONNECT for header in match.headers)
    )


def _for_connect(route: Route) -> Route:
    result = Route()
    result.CopyFrom(route)
    result.match.CopyFrom(RouteMatch(headers=route.match.headers))
    result.match.connect_matcher.SetInParent()
    result.route.upgrade_configs.add(upgrade_type=CONNECT)
    for about_paths in ("prefix_rewrite", "regex_rewrite", "path_rewrite_policy", "host_rewrite_literal"):
        result.route.ClearField(about_paths)
    return result
