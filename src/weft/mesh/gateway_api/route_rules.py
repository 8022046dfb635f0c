"""Converts the rules of a Gateway API route into routes of the mesh: decides which backends can be used, and in
which order the rules for a host are matched. Pure functions; `attached.py` passes the objects.

Rule: if a backend cannot be used, the requests that its weight assigns to it get a 500, and the connections are closed.
They are never sent to another backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from weft.model.gateway_api import (
    GROUP,
    ISTIO_GROUP,
    Backend,
    GrantSource,
    GrantTarget,
    ReferenceGrant,
    RouteKind,
    RouteRule,
    StandardRoute,
)
from weft.model.outcome import RESOLVED, BackendFlaw, StatusCondition, unresolved
from weft.model.scope import exported
from weft.model.service import Protocol, Service
from weft.model.virtual_service import (
    Destination,
    DirectResponse,
    HttpMatch,
    HttpRoute,
    L4Match,
    L4Route,
    MatchKind,
    Mirror,
    WeightedDestination,
)


class Services(msgspec.Struct, frozen=True):
    """Finds the services of the mesh. `find`: by host and namespace; with the namespace "", the claim to the host with
    the highest precedence. `of_entry`: the services of a ServiceEntry, one for each of its hosts, by the namespace and
    name of the ServiceEntry."""

    find: Callable[[str, str], Service | None]
    of_entry: Callable[[str, str], tuple[Service, ...]] = lambda _namespace, _name: ()

    def __call__(self, host: str, namespace: str) -> Service | None:
        return self.find(host, namespace)


_UNKNOWN = DirectResponse(status=500)
Precedence = tuple[object, ...]


class ResolvedRoute(msgspec.Struct, frozen=True):
    """A route's rules for the mesh (`http`: one route for each match, with its precedence; `streams`: TCP and TLS
    routes), its ResolvedRefs condition (`told`) and the backends that cannot be used (`flaws`)."""

    http: tuple[tuple[Precedence, HttpRoute], ...] = ()
    streams: tuple[L4Route, ...] = ()
    told: StatusCondition = RESOLVED
    flaws: tuple[BackendFlaw, ...] = ()


def resolved(
    route: StandardRoute, services: Services, grants: Iterable[ReferenceGrant] | None, called: str = ""
) -> ResolvedRoute:
    """Resolve a route's backends and return its rules for the mesh. `services`: finds the services of the backends.
    `grants`: the ReferenceGrants; None for routes between workloads, which need none. `called`: the destination host
    for rules without backends."""
    permitted = _Permission(route, tuple(grants) if grants is not None else None)
    http: list[tuple[Precedence, HttpRoute]] = []
    streams: list[L4Route] = []
    flaws: dict[BackendFlaw, None] = {}

    def usable(backend: Backend, rule: int) -> bool:
        flaw = _flaw(backend, services, permitted)
        if flaw is not None:
            flaws[BackendFlaw(rule, backend.line or route.rules[rule].line, *flaw, backend.host)] = None
        return flaw is None

    for number, rule in enumerate(route.rules):
        good = tuple(each for each in rule.backends if usable(each, number))
        if route.kind.is_http:
            http_route = _http(rule, good, tuple(each for each in rule.mirrors if usable(each[0], number)), called)
            http += (
                ((*precedence(route.kind, match), *route.age, number, place), replace(http_route, match=(match,)))
                for place, match in enumerate(rule.matches)
            )
        else:
            taking = tuple(_weighted(each) for each in good if each.weight > 0)
            lost = sum(each.weight for each in rule.backends if each not in good) or int(not taking)
            streams.append(L4Route((L4Match(sni_hosts=route.hostnames),), taking, rule.line, lost))
    condition = RESOLVED
    if flaws:
        condition = unresolved(next(iter(flaws)).reason, "; ".join(dict.fromkeys(flaw.message for flaw in flaws)))
    return ResolvedRoute(tuple(http), tuple(streams), condition, tuple(flaws))


def precedence(kind: RouteKind, match: HttpMatch) -> Precedence:
    """Sort key of a match of a route of this kind, for the Gateway API's order of matches across all routes: the match
    with the smallest key is tried first. A regular expression is ordered after a prefix of the same length."""
    uri = match.uri
    if kind is RouteKind.GRPC:
        service, method = _call(match)
        return (-service, -method, 0, False, -len(match.headers), 0)
    if uri is not None and uri.kind is MatchKind.EXACT:
        path: Precedence = (0, 0, 0)
    elif uri is not None and uri.kind is MatchKind.REGEX:
        path = (1, -len(uri.value), 1)
    else:
        path = (1, -len(uri.value.rstrip("/")) if uri is not None else 0, 0)
    return (*path, match.method is None, -len(match.headers), -len(match.query_params))


def _call(match: HttpMatch) -> tuple[int, int]:
    """Return (service, method): how many characters of a gRPC call's service name, and of its method name, the match
    compares."""
    value = match.uri.value if match.uri is not None else "/"
    service, _, method = value[1:].partition("/")
    if match.uri is not None and match.uri.kind is MatchKind.REGEX and service == "[^":
        return 0, len(value)  # the match is for any service
    return len(service), len(method)


def _http(
    rule: RouteRule, good: tuple[Backend, ...], mirrors: tuple[tuple[Backend, float], ...], called: str
) -> HttpRoute:
    if rule.route.redirect is not None:
        return rule.route
    copies = tuple(Mirror(_destination(each), share, each.line) for each, share in mirrors)
    if called and not rule.backends:
        return replace(rule.route, route=(WeightedDestination(Destination(called), line=rule.line),), mirrors=copies)
    lost = sum(each.weight for each in rule.backends if each not in good)
    if not any(each.weight for each in good):
        return replace(rule.route, direct_response=_UNKNOWN, rewrite=None, retries=None, timeout=None)
    return replace(
        rule.route,
        route=tuple(_weighted(each) for each in good),
        mirrors=copies,
        failing=lost,
    )


def _weighted(backend: Backend) -> WeightedDestination:
    return WeightedDestination(_destination(backend), backend.weight, backend.headers, backend.line)


def _destination(backend: Backend) -> Destination:
    return Destination(backend.host, port=backend.port)


class _Permission(msgspec.Struct, frozen=True):
    """Decides which objects of other namespaces a route may reference: those that a ReferenceGrant in `grants` allows;
    all objects if `grants` is None."""

    route: StandardRoute
    grants: tuple[ReferenceGrant, ...] | None

    def allows(self, backend: Backend) -> bool:
        if self.grants is None:
            return True
        source = GrantSource(GROUP, self.route.kind, self.route.namespace)
        target = GrantTarget(backend.group, backend.kind, backend.name)
        return backend.namespace == self.route.namespace or any(
            grant.namespace == backend.namespace and grant.allows(source, target) for grant in self.grants
        )


def _flaw(backend: Backend, services: Services, permitted: _Permission) -> tuple[str, str] | None:
    """Return (reason, message) of the ResolvedRefs condition if a backend cannot be used; None if it can. `services`:
    returns the service for a host and a namespace. `permitted`: decides which namespaces the route may reference."""
    if (backend.group, backend.kind) != ("", "Service") and not backend.is_host:
        named = f"{backend.kind}.{backend.group}" if backend.group else backend.kind
        return "InvalidKind", f"a backend cannot be a {named}, only a Service or a Hostname.{ISTIO_GROUP}"
    named = f"the host {backend.name}" if backend.is_host else f"Service {backend.namespace}/{backend.name}"
    if not permitted.allows(backend):
        return "RefNotPermitted", f"no ReferenceGrant in {backend.namespace} allows this route to send to {named}"
    service = services(backend.host, "" if backend.is_host else backend.namespace)
    if service is None or (backend.is_host and not _is_visible(service, permitted.route.namespace)):
        return "BackendNotFound", f"{named} does not exist"
    port = service.port(backend.port)
    if port is None or port.protocol is Protocol.UDP:
        numbers = ", ".join(str(each.number) for each in service.ports) or "none"
        return "BackendNotFound", f"{named} has no port {backend.port}; it has {numbers}"
    return None


def _is_visible(service: Service, viewer: str) -> bool:
    return exported(service.export_to, owner=service.namespace, viewer=viewer)
