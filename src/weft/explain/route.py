"""Finds the virtual host that matches a request's authority, and the first of its routes that matches the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from envoy.config.route.v3.route_components_pb2 import Route, RouteMatch, VirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from weft.explain import matchers, regex
from weft.explain.decision import Unsure
from weft.explain.request import RequestHeaders
from weft.explain.world import EnvoyResources


class _Hosts(msgspec.Struct, frozen=True):
    """The virtual hosts of a route configuration by domain, for each kind of match: exact names, suffixes
    (`*.example.com`, without the star), prefixes (`example.*`), and `*` (`rest`; None if there is none). Suffixes and
    prefixes are sorted, the longest first. `of`: the route configuration, kept because its id() is part of a cache
    key."""

    of: RouteConfiguration  # kept alive, because its id() is part of the cache key
    exact: Mapping[str, VirtualHost]
    suffixes: tuple[tuple[str, VirtualHost], ...]
    prefixes: tuple[tuple[str, VirtualHost], ...]
    rest: VirtualHost | None


def virtual_host(resources: EnvoyResources, configuration: RouteConfiguration, authority: str) -> VirtualHost | None:
    key = ("hosts", id(configuration))
    hosts = resources.kept.get(key)
    if hosts is None:
        hosts = resources.kept[key] = _hosts(configuration)
    name = matchers.lower(authority)
    if configuration.ignore_port_in_host_matching:
        name = without_port(name)
    exact: VirtualHost | None = hosts.exact.get(name)
    if exact is not None:
        return exact
    for ending, host in hosts.suffixes:
        if len(name) > len(ending) and name.endswith(ending):
            return host
    for beginning, host in hosts.prefixes:
        if len(name) > len(beginning) and name.startswith(beginning):
            return host
    rest: VirtualHost | None = hosts.rest
    return rest


def first_match(host: VirtualHost, headers: RequestHeaders, metadata: Mapping[str, Any] | None = None) -> Route | None:
    target = headers.value(":path")
    path = matchers.without_query(target)
    return next((route for route in host.routes if takes(route.match, headers, target, path, metadata)), None)


def takes(
    match: RouteMatch, headers: RequestHeaders, target: str, path: str, metadata: Mapping[str, Any] | None = None
) -> bool:
    """Whether a request fulfils the match of a route. `target`: the path with its query, `path`: without it.
    `metadata`: what earlier filters have set, such as the claims of a verified token. Raises Unsure if the match has a
    condition that cannot be predicted, such as a runtime fraction."""
    is_connect = headers.value(":method") == "CONNECT"
    if not _takes_path(match, path, is_connect=is_connect):
        return False
    if not all(matchers.header(each, headers) for each in match.headers):
        return False
    if match.query_parameters:
        parameters = matchers.query_parameters(target)
        if not all(matchers.query_parameter(each, parameters) for each in match.query_parameters):
            return False
    if match.HasField("grpc") and not is_grpc(headers):
        return False
    if not all(matchers.metadata(each, metadata or {}) for each in match.dynamic_metadata):
        return False
    for unknown in ("runtime_fraction", "tls_context", "filter_state"):
        if match.HasField(unknown) if unknown in ("runtime_fraction", "tls_context") else getattr(match, unknown):
            raise Unsure(f"a route is chosen by {unknown}, which cannot be predicted")
    return True


def is_grpc(headers: RequestHeaders) -> bool:
    kind = headers.joined("content-type") or ""
    return kind == "application/grpc" or kind.startswith("application/grpc+")


def without_port(authority: str) -> str:
    """The host of an authority such as `host:80` or `[::1]:80`, without the port."""
    start = authority.rfind(":")
    return authority if start < 0 or authority.rfind("]") > start else authority[:start]


def _takes_path(match: RouteMatch, path: str, *, is_connect: bool) -> bool:
    kind = match.WhichOneof("path_specifier")
    if kind == "connect_matcher" or is_connect:
        return kind == "connect_matcher" and is_connect  # a CONNECT request has no path
    if kind == "safe_regex":
        return regex.matches(match.safe_regex.regex, path)
    if kind not in ("path", "prefix", "path_separated_prefix"):
        raise Unsure(f"a path is matched by {kind or 'nothing'}, which is not simulated")
    wanted: str = getattr(match, kind)
    if match.HasField("case_sensitive") and not match.case_sensitive.value:
        wanted, path = matchers.lower(wanted), matchers.lower(path)
    if kind == "path":
        return path == wanted
    if kind == "prefix":
        return path.startswith(wanted)
    return path.startswith(wanted) and path[len(wanted) : len(wanted) + 1] in ("", "/")


def _hosts(configuration: RouteConfiguration) -> _Hosts:
    exact: dict[str, VirtualHost] = {}
    suffixes: dict[str, VirtualHost] = {}
    prefixes: dict[str, VirtualHost] = {}
    rest: VirtualHost | None = None
    for host in configuration.virtual_hosts:
        for domain in host.domains:
            name = matchers.lower(domain)
            if name == "*":
                rest = host
            elif name.startswith("*"):
                suffixes[name[1:]] = host
            elif name.endswith("*"):
                prefixes[name[:-1]] = host
            else:
                exact[name] = host

    def longest(hosts: dict[str, VirtualHost]) -> tuple[tuple[str, VirtualHost], ...]:
        return tuple(sorted(hosts.items(), key=lambda entry: -len(entry[0])))

    return _Hosts(configuration, exact, longest(suffixes), longest(prefixes), rest)
