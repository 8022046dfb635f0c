"""Generate requests from external clients to gateways, from the hosts that a gateway serves and the paths in its
routes. `trial.py` tries them, in addition to the declared requests."""

from __future__ import annotations

import re
from collections.abc import Iterator

from weft.api.request_test import RequestCase
from weft.base.problem import Where
from weft.inspect.stage import Stage
from weft.mesh.mesh import Mesh
from weft.model.edge import ANY, ServedName
from weft.model.group import Group, ProxyKind
from weft.model.virtual_service import MatchKind, VirtualService

_ANY_LABEL = "any"  # replaces the `*` of a wildcard host
_PATH = re.compile(r"/[^?#\s]*")
_BEGINS = (MatchKind.EXACT, MatchKind.PREFIX, MatchKind.PATH_PREFIX)


def edge_calls(stage: Stage) -> Iterator[RequestCase]:
    for group, pods in sorted(stage.groups().items()):
        if group.kind is ProxyKind.GATEWAY:
            for url in dict.fromkeys(_urls(stage.mesh, group)):
                yield RequestCase(Where(), pods[0], url)


def _urls(mesh: Mesh, group: Group) -> Iterator[str]:
    scope = mesh.scope(group)
    edge = mesh.edge(scope)
    encrypted = {each.route_name for each in scope.servers or () if each.server.encrypted}
    for domain, doors in sorted(edge.doors.items()):
        for door in doors:
            if not door.misdirected:
                scheme = "https" if door.route_name in encrypted else "http"
                yield from (f"{scheme}://{_named(domain)}:{door.port}{path}" for path in _paths(mesh, door))
    for server in edge.streams:
        scheme = "tls" if server.server.encrypted else "tcp"
        yield from (f"{scheme}://{_named(each.host)}:{server.server.port.number}" for each in server.hosts)


def _named(domain: str) -> str:
    """An example of a host name that the domain matches."""
    if domain == ANY:
        return f"{_ANY_LABEL}.example"
    return f"{_ANY_LABEL}{domain[1:]}" if domain.startswith("*") else domain


def _paths(mesh: Mesh, door: ServedName) -> list[str]:
    paths = {"/"}
    for routing in door.routes:
        paths.update(_matched_paths(routing))
        for route in routing.http:
            delegate = mesh.delegate(routing, route)
            paths.update(_matched_paths(delegate) if delegate else ())
    return sorted(paths)


def _matched_paths(routing: VirtualService) -> Iterator[str]:
    """The paths and prefixes in the route matches of a VirtualService, without those that cannot begin a URL's path."""
    for uri in (match.uri for route in routing.http for match in route.match):
        if uri is not None and uri.kind in _BEGINS and _PATH.fullmatch(uri.value):
            yield uri.value
