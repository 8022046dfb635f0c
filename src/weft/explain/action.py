"""The effect of a route on a request: the location of a redirect, and changes of path, authority and headers."""

from __future__ import annotations

import re
from collections.abc import Iterable

from envoy.config.core.v3.base_pb2 import HeaderValueOption
from envoy.config.route.v3.route_components_pb2 import RedirectAction, Route, RouteAction, RouteMatch, WeightedCluster

from weft.explain import matchers, regex
from weft.explain.request import RequestHeaders

REDIRECTS = {
    RedirectAction.MOVED_PERMANENTLY: 301,
    RedirectAction.FOUND: 302,
    RedirectAction.SEE_OTHER: 303,
    RedirectAction.TEMPORARY_REDIRECT: 307,
    RedirectAction.PERMANENT_REDIRECT: 308,
}

# A command such as `%REQ(x)%`. Its value is known only when a request is sent.
_COMMAND = re.compile(r"(?<!%)(?:%%)*%(?!%)")


def location(redirect: RedirectAction, headers: RequestHeaders, match: RouteMatch) -> str:
    scheme = redirect.scheme_redirect or ("https" if redirect.https_redirect else headers.value(":scheme"))
    port = f":{redirect.port_redirect}" if redirect.port_redirect else ""
    host = redirect.host_redirect or _host(headers, scheme, port)
    target = headers.value(":path")
    if redirect.path_redirect:
        path, mark, query = redirect.path_redirect, *target.partition("?")[1:]
        if "?" not in path and not redirect.strip_query:
            path = f"{path}{mark}{query}"
    elif redirect.prefix_rewrite or redirect.HasField("regex_rewrite"):
        before = matchers.without_query(target)
        rest = "" if redirect.strip_query else target[len(before) :]
        path = _rewritten(redirect, match, before) + rest
    else:
        path = target.partition("?")[0] if redirect.strip_query else target
    return f"{scheme}://{host}{port}{path}"


def rewrite(route: Route, headers: RequestHeaders) -> None:
    """Rewrites authority and path in `headers` as the route's action requires. The header `x-envoy-original-path`
    keeps the original path."""
    action = route.route
    if action.host_rewrite_literal:
        headers.set(":authority", action.host_rewrite_literal)
    target = headers.value(":path")
    path = matchers.without_query(target)
    rest = target[len(path) :]
    if not action.HasField("regex_rewrite") and not action.prefix_rewrite:
        return
    rewritten = _rewritten(action, route.match, path)
    if not rewritten:
        return  # Envoy treats an empty path as no rewrite
    headers.set("x-envoy-original-path", target)
    headers.set(":path", rewritten + rest)


def change_headers(message: Route | WeightedCluster.ClusterWeight, headers: RequestHeaders) -> None:
    """Applies the request header changes of a route or weighted cluster (`message`) to `headers`: removals first, then
    additions."""
    for name in message.request_headers_to_remove:
        headers.remove(name)
    add_headers(message.request_headers_to_add, headers)


def add_headers(options: Iterable[HeaderValueOption], headers: RequestHeaders) -> None:
    """Adds the headers of `options` to `headers`, as Envoy does: first all options that overwrite a value, then all
    that append one, whatever their order in the config. A value with a command (`%REQ(x)%`) is marked as
    unpredictable."""
    added: list[tuple[str, str]] = []
    for option in options:
        name, value = option.header.key, option.header.value
        if _COMMAND.search(value):
            headers.remove(name)
            headers.make_up(name.lower())
            continue
        text = value.replace("%%", "%")
        if not text and not option.keep_empty_value:
            continue
        match option.append_action:
            case HeaderValueOption.APPEND_IF_EXISTS_OR_ADD:
                added.append((name, text))
            case HeaderValueOption.ADD_IF_ABSENT if not headers.has(name):
                added.append((name, text))
            case HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD:
                headers.set(name, text)
            case HeaderValueOption.OVERWRITE_IF_EXISTS if headers.has(name):
                headers.set(name, text)
    for name, text in added:
        headers.add(name, text)


def _rewritten(action: RouteAction | RedirectAction, match: RouteMatch, path: str) -> str:
    if action.HasField("regex_rewrite"):
        return regex.replaced(action.regex_rewrite.pattern.regex, action.regex_rewrite.substitution, path)
    return str(action.prefix_rewrite) + path[_matched(match, path) :]


def _matched(match: RouteMatch, path: str) -> int:
    """The number of characters at the start of `path` that the route's match covers: the length of its prefix if it
    matches by prefix, else the length of the whole path."""
    match match.WhichOneof("path_specifier"):
        case "prefix":
            return len(match.prefix)
        case "path_separated_prefix":
            return len(match.path_separated_prefix)
    return len(path)


def _host(headers: RequestHeaders, scheme: str, port: str) -> str:
    """The host of a redirect that does not set one: the host in the request's authority. The authority's port is
    removed if the redirect sets a port itself, or if the redirect changes the scheme and the port is the default
    port of the old scheme."""
    host = headers.value(":authority")
    start = host.rfind(":")
    if start < 0 or host.rfind("]") > start:
        return host
    before = headers.value("x-forwarded-proto")
    usual = {"http": ":80", "https": ":443"}.get(before)
    return host[:start] if port or (scheme != before and host[start:] == usual) else host
