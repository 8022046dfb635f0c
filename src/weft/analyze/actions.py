"""Findings about settings of routes that are probably mistakes: a `perTryTimeout` that is not below `timeout`,
faults on every request, mirrors and redirects to the route's own destination, weights that do not add up to 100,
destinations without a port."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from weft.analyze.facts import Facts
from weft.analyze.finding import finding
from weft.analyze.gateway_routes import meets
from weft.base.problem import Problem
from weft.model.service import Protocol
from weft.model.virtual_service import MESH, HttpMatch, HttpRoute, MatchKind, VirtualService, WeightedDestination

_WHOLE = 100
# Retry conditions under which the server may have processed the request already. Errors that the server itself sends
# (503, a gRPC status) are left out: their meaning is up to the server.
_AFTER_ACTING = frozenset({"5xx", "gateway-error", "reset"})
_SERVER_ERRORS = frozenset({"500", "502", "504"})
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})  # RFC 9110, 9.2.2


def of_actions(facts: Facts) -> Iterator[Problem]:
    handing = _handing_over(facts)
    for routing in facts.virtual_services:
        for number, route in enumerate(routing.http):
            field = f"spec.http[{number}]"
            for code, part, what, hint in (
                *_of_methods(route.match),
                *_of_tries(route),
                *_of_repeats(route),
                *_of_fault(route),
                *_of_mirrors(route),
                *_of_redirect(route, routing.http[:number]),
                *_of_weights(route.route),
                *_of_ports(route, _ways(route, routing, handing), facts),
            ):
                yield finding(code, routing.origin, f"{field}.{part}", what, hint, line=route.line)
        for name, routes in (("tls", routing.tls), ("tcp", routing.tcp)):
            for number, stream in enumerate(routes):
                for code, part, what, hint in _of_weights(stream.route):
                    field = f"spec.{name}[{number}].{part}"
                    yield finding(code, routing.origin, field, what, hint, line=stream.line)


_Flaw = tuple[str, str, str, str]  # the code, the part of the route, what is wrong, a hint


def _of_tries(route: HttpRoute) -> Iterator[_Flaw]:
    retries = route.retries
    if retries is None or not retries.attempts or retries.per_try_timeout is None or not route.timeout:
        return
    if retries.per_try_timeout >= route.timeout:
        what = (
            f"one try may last {_seconds(retries.per_try_timeout)} and the whole request {_seconds(route.timeout)}: "
            "a slow try is never retried"
        )
        hint = f"set `timeout` to more than {retries.attempts + 1} × `perTryTimeout`, or lower `perTryTimeout`"
        yield "WFT0115", "retries.perTryTimeout", what, hint


def _of_repeats(route: HttpRoute) -> Iterator[_Flaw]:
    """Findings about retries that may repeat a request which the server has already processed. Routes that match
    only idempotent methods are not reported."""
    retries = route.retries
    if retries is None or not retries.attempts or (route.match and all(map(_may_repeat, route.match))):
        return
    reasons = [reason.strip() for reason in retries.retry_on.split(",")]
    repeating = [reason for reason in reasons if reason in _AFTER_ACTING or reason in _SERVER_ERRORS]
    if repeating:
        what = (
            f"POST requests are retried after {', '.join(repeating)}, when the server may already have processed them"
        )
        hint = "match only idempotent methods, or retry on reset-before-request,connect-failure,refused-stream"
        yield "WFT0126", "retries.retryOn", what, hint


def _may_repeat(match: HttpMatch) -> bool:
    """Whether the match selects only requests that may safely be sent twice: those with an idempotent method. False for
    a match without a method, because it selects requests with any method. A method that is matched by a prefix or
    regular expression is not analyzed and counts as idempotent."""
    method = match.method
    return method is not None and (method.kind is not MatchKind.EXACT or method.value in _IDEMPOTENT)


def _of_methods(matches: tuple[HttpMatch, ...]) -> Iterator[_Flaw]:
    for number, match in enumerate(matches):
        method = match.method
        if method is None or method.kind not in (MatchKind.EXACT, MatchKind.PREFIX):
            continue
        if method.value != method.value.upper():
            what = f"no request has the method `{method.value[:40]}`: methods are in upper case"
            yield "WFT0124", f"match[{number}].method", what, f"write {method.value[:40].upper()}"


def _of_fault(route: HttpRoute) -> Iterator[_Flaw]:
    delay, abort = (route.fault.delay, route.fault.abort) if route.fault else (None, None)
    hint = "if the test is over, remove the `fault`"
    chosen = bool(route.match) and all(map(_is_by_caller, route.match))
    if abort is not None and abort.percentage >= _WHOLE and not route.match:
        yield "WFT0116", "fault.abort", "every request is aborted here: none reaches the service", hint
    elif abort is not None and abort.percentage >= _WHOLE and not chosen:
        yield "WFT0125", "fault.abort", "every request of this route is aborted", hint
    if delay is not None and delay.percentage >= _WHOLE and not chosen:
        yield "WFT0125", "fault.delay", f"every request of this route is delayed by {_seconds(delay.fixed)}", hint


def _is_by_caller(match: HttpMatch) -> bool:
    """Whether the match needs a header, query parameter or source label. Callers choose these, so a fault of the
    route affects only requests that opt in."""
    return bool(match.headers or match.without_headers or match.query_params or match.source_labels)


def _of_mirrors(route: HttpRoute) -> Iterator[_Flaw]:
    goals = {weighted.destination for weighted in route.route}
    for index, mirror in enumerate(route.mirrors):
        if goals == {mirror.destination} and mirror.percentage > 0:
            what = f"{mirror.destination.host} gets each request twice: the request is mirrored to its own destination"
            yield "WFT0117", _mirror(route, index), what, "mirror to another subset or host"


def _mirror(route: HttpRoute, index: int) -> str:
    return f"mirrors[{index}]" if len(route.mirrors) > 1 else "mirror"


def _of_redirect(route: HttpRoute, above: tuple[HttpRoute, ...]) -> Iterator[_Flaw]:
    redirect = route.redirect
    if redirect is None or redirect.authority or redirect.scheme or redirect.port or redirect.derive_port:
        return
    path = redirect.uri
    if any(_takes(match, path) for each in above for match in each.match or (HttpMatch(),)):
        return  # the redirected request matches another route
    if any(_takes(match, path) and _asks_path_only(match) for match in route.match or (HttpMatch(),)):
        what = f"this redirects to {path}, which this route matches again: clients run into a redirect loop"
        yield "WFT0123", "redirect", what, f"put a route for {path} above this one"


def _takes(match: HttpMatch, path: str) -> bool:
    """Whether a request with this path may fulfil the match."""
    uri = match.uri
    if uri is None:
        return True
    written, wanted = (uri.value.lower(), path.lower()) if match.ignore_uri_case else (uri.value, path)
    if uri.kind is MatchKind.EXACT:
        return wanted.partition("?")[0] == written
    return uri.kind is not MatchKind.PREFIX or wanted.startswith(written)


def _asks_path_only(match: HttpMatch) -> bool:
    """Whether the match has conditions on the path only. If it has others, such as a cookie or a method, a
    redirected request may not match again."""
    regex = match.uri is not None and match.uri.kind is MatchKind.REGEX
    named = match.headers or match.without_headers or match.query_params
    return not (regex or named or match.method or match.authority or match.scheme)


def _of_weights(route: tuple[WeightedDestination, ...]) -> Iterator[_Flaw]:
    total = sum(weighted.weight for weighted in route)
    if len(route) > 1 and total not in (0, _WHOLE):
        shares = ", ".join(f"{weighted.weight * _WHOLE / total:.3g} %" for weighted in route[:4])
        yield (
            "WFT0113",
            "route",
            f"the weights add up to {total}: the shares are {shares}",
            "use weights that add up to 100",
        )


# A VirtualService, and the chain of routes that a request passes: a route of it, then perhaps a route of its delegate.
_Way = tuple[VirtualService, tuple[HttpRoute, ...]]


def _handing_over(facts: Facts) -> dict[tuple[str, str], list[_Way]]:
    """Return, for each delegate (by namespace and name), the ways to it (`_Way`): the VirtualServices that delegate to
    it, each with a tuple of one element, its delegating route."""
    ways: dict[tuple[str, str], list[_Way]] = {}
    for routing in facts.virtual_services:
        for route in routing.http:
            if route.delegate is not None:
                ways.setdefault((route.delegate.namespace, route.delegate.name), []).append((routing, (route,)))
    return ways


def _ways(route: HttpRoute, routing: VirtualService, handing: dict[tuple[str, str], list[_Way]]) -> list[_Way]:
    if routing.hosts:
        return [(routing, (route,))]
    return [(root, (*met, route)) for root, met in handing.get((routing.namespace, routing.name), ())]


def _of_ports(route: HttpRoute, ways: list[_Way], facts: Facts) -> Iterator[_Flaw]:
    """Findings about destinations of a route, or of its mirrors, that name no port and cannot be called. A destination
    without a port is called at the only port of its service, or, if the service has several ports, at the port that the
    caller called. So a destination is reported if its service has several ports and the called port is none of these.
    `ways`: how requests reach the route: each is a VirtualService with hosts, and the routes that a request must match,
    one after the other: `route` alone, or a delegating route and then `route`."""
    aims = [
        *(
            (f"route[{at}].destination", each.destination, "these requests fail with 503")
            for at, each in enumerate(route.route)
        ),
        *(
            (_mirror(route, at), each.destination, "these requests are not mirrored")
            for at, each in enumerate(route.mirrors)
        ),
    ]
    for part, destination, effect in aims:
        host = destination.host
        offered = {port.number for service in facts.by_host.get(host, ()) for port in service.ports}
        if destination.port or len(offered) < 2:
            continue
        called = {port for root, met in ways if host not in root.hosts for port in _called(met, root, facts)}
        if missing := sorted(called - offered):
            what = (
                f"requests to port {missing[0]} match this route, which names no port for {host}, and {host} has no "
                f"port {missing[0]}: {effect}"
            )
            yield "WFT0114", part, what, f"name the port: `port: {{number: {min(offered)}}}`"


def _called(met: tuple[HttpRoute, ...], routing: VirtualService, facts: Facts) -> set[int]:
    """The ports at which HTTP requests can match all routes in `met`. `met`: one route of `routing`; or, if that route
    delegates, this route and the route of the delegate. The ports are those of the Gateways that `routing` names and,
    if it applies to sidecars, those of the services with its hosts."""
    numbers: set[int] = set()
    for name in routing.gateways:
        gateway = facts.gateways.get(name)
        if name == MESH:
            ports = (port for host in routing.hosts for each in facts.by_host.get(host, ()) for port in each.ports)
            spoken = {port.number for port in ports if port.protocol.is_http or port.protocol is Protocol.UNDECLARED}
        else:
            servers = gateway.servers if gateway is not None else ()
            spoken = {
                server.port.number
                for server in servers
                if gateway is not None and server.is_http and not server.redirects and meets(routing, gateway, server)
            }
        numbers |= {number for number in spoken if all(_comes(route, name, number) for route in met)}
    return numbers


def _comes(route: HttpRoute, gateway: str, port: int) -> bool:
    """Whether a request to this port can match the route. `gateway`: the Gateway that receives the request, or
    `mesh` for a sidecar."""
    return not route.match or any(
        (not match.gateways or gateway in match.gateways) and match.port in (0, port) for match in route.match
    )


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():g}s"
