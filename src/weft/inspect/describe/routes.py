"""Describe how requests reach the pods of a service: the DestinationRules for its host with their subsets, and the
VirtualServices that route to it, route by route, with the conditions in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

import msgspec

from weft.base.problem import Where
from weft.inspect.describe.settings import of_route, of_rule, target
from weft.mesh.mesh import Mesh
from weft.model.destination_rule import DestinationRule, Subset
from weft.model.group import Group
from weft.model.instance import Instance
from weft.model.names import Labels, Origin, host_covers, selects, where_of
from weft.model.scope import Scope
from weft.model.service import Service
from weft.model.virtual_service import (
    MESH,
    Destination,
    HttpMatch,
    HttpRoute,
    L4Match,
    L4Route,
    MatchKind,
    StringMatch,
    VirtualService,
    WeightedDestination,
    claim_path,
)

T = TypeVar("T")


class SubsetFacts(msgspec.Struct, frozen=True):
    name: str
    labels: dict[str, str]
    pods: tuple[str, ...]  # those of the described pods that are in the subset


class RuleFacts(msgspec.Struct, frozen=True):
    where: Where
    host: str
    subsets: tuple[SubsetFacts, ...]
    policy: tuple[str, ...]  # its settings, in words
    in_force: bool  # it applies to callers of the same namespace and labels


class RouteFacts(msgspec.Struct, frozen=True):
    number: int  # position, from 1
    kind: str  # http, tls or tcp
    name: str
    where: Where
    when: str
    goes: str
    reaches: bool  # whether it leads to one of the described pods
    also: tuple[str, ...] = ()  # its other settings, in words: faults, timeouts, retries, rewrites, mirrors
    elsewhere: bool = False  # it routes to other services only


class Routing(msgspec.Struct, frozen=True):
    where: Where
    hosts: tuple[str, ...]
    gateways: tuple[str, ...]
    in_force: bool  # sidecars in the same namespace use it for this host
    routes: tuple[RouteFacts, ...]
    callers: str = ""  # the namespace whose callers use it, if this is not the service's namespace


class _Named(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def origin(self) -> Origin | None: ...


def named(value: _Named, *, line: int = 0) -> Where:
    """The place of the object that a value comes from: the object's name, its file, and `line` or else the object's
    own line."""
    return where_of(
        value.origin, "" if value.origin else f"{type(value).__name__} {value.namespace}/{value.name}", line=line
    )


def rules(mesh: Mesh, service: Service, viewer: Group, pods: list[Instance]) -> Iterator[RuleFacts]:
    """Describe every DestinationRule that covers the service's host. `viewer`: the group of proxies for which the rule
    in force is determined. `pods`: the pods of the service. The rule in force comes first, or, if it was merged from
    several rules, all of these."""
    chosen = mesh.destination_rule(service.host, service, viewer)
    covering = [each for each in _all(mesh, DestinationRule) if host_covers(each.host, service.host)]

    def decides(rule: DestinationRule) -> bool:
        return chosen is not None and (rule is chosen or rule.origin in chosen.origins)

    for rule in sorted(covering, key=lambda each: (not decides(each), each.namespace, each.name)):
        yield RuleFacts(
            where=named(rule),
            host=rule.host,
            subsets=tuple(_subset(each, pods) for each in rule.subsets),
            policy=of_rule(rule),
            in_force=decides(rule),
        )


def routings(mesh: Mesh, service: Service, viewer: Group, pods: list[Instance]) -> tuple[Routing, ...]:
    """Describe the VirtualServices for the service's host, and those for other hosts that route to the service. Objects
    of the Gateway API become one VirtualService per listener and hostname; equal ones are merged here. `viewer`: the
    group of proxies for which the VirtualServices in force are determined. `pods`: the pods of the service."""
    merged: dict[tuple[Where, bool, str, tuple[RouteFacts, ...]], Routing] = {}
    for each in _routings(mesh, service, viewer, pods):
        first = merged.setdefault((each.where, each.in_force, each.callers, each.routes), each)
        merged[(each.where, each.in_force, each.callers, each.routes)] = msgspec.structs.replace(
            first,
            hosts=tuple(dict.fromkeys((*first.hosts, *each.hosts))),
            gateways=tuple(dict.fromkeys((*first.gateways, *each.gateways))),
        )
    return tuple(merged.values())


def _routings(mesh: Mesh, service: Service, viewer: Group, pods: list[Instance]) -> Iterator[Routing]:
    host = service.host
    rule = mesh.destination_rule(host, service, viewer)
    subsets = {each.name: each.labels for each in rule.subsets} if rule else {}
    in_force = mesh.virtual_services(host, mesh.scope(viewer))
    for routing in sorted(_all(mesh, VirtualService), key=lambda each: (each.namespace, each.name)):
        between = MESH in routing.gateways
        # A wildcard host counts only for sidecars. At a gateway, a wildcard stands for external names, not for the
        # service.
        speaks = any(each == host or (between and host_covers(each, host)) for each in routing.hosts)
        kinds: tuple[tuple[str, tuple[HttpRoute | L4Route, ...]], ...] = (
            ("http", routing.http),
            ("tls", routing.tls),
            ("tcp", routing.tcp),
        )
        listed = [
            _route(routing, number, kind, route, service, subsets, pods)
            for kind, routes in kinds
            for number, route in enumerate(routes, 1)
            if speaks or any(each.destination.host == host for each in route.route)
        ]
        if speaks or listed:
            here = routing in in_force if speaks else between
            elsewhere = speaks and between and not here and routing.namespace != viewer.namespace
            theirs = elsewhere and routing in mesh.virtual_services(host, Scope(routing.namespace))
            for where, routes_of_one in _by_object(routing, listed):
                yield Routing(
                    where=where,
                    hosts=routing.hosts,
                    gateways=tuple(each for each in routing.gateways if each != MESH),
                    in_force=here,
                    routes=routes_of_one,
                    callers=routing.namespace if theirs else "",
                )


def _by_object(routing: VirtualService, listed: list[RouteFacts]) -> Iterator[tuple[Where, tuple[RouteFacts, ...]]]:
    """Group the routes of a VirtualService (`listed`) by the object that declares them: yields the place of each object
    and its routes. A VirtualService that is derived from the Gateway API may come from several objects; any other
    VirtualService is one object."""
    if not routing.attached or not routing.http:
        yield named(routing), tuple(listed)
        return
    for origin in routing.origins:
        where = where_of(origin)
        own = tuple(each for each in listed if each.where.object == where.object)
        if own:
            yield where, own


def _route(
    routing: VirtualService,
    number: int,
    kind: str,
    route: HttpRoute | L4Route,
    service: Service,
    subsets: dict[str, Labels],
    pods: list[Instance],
) -> RouteFacts:
    def reaches(destination: Destination) -> bool:
        if destination.host != service.host or (destination.port and service.port(destination.port) is None):
            return False
        wanted = subsets.get(destination.subset) if destination.subset else ()
        return wanted is not None and any(selects(wanted, pod.labels) for pod in pods)

    return RouteFacts(
        number=number,
        kind=kind,
        name=route.name if isinstance(route, HttpRoute) else "",
        where=_where(routing, route),
        when=" or ".join(map(_condition, route.match)) or "always",
        goes=_goes(route),
        reaches=any(reaches(each.destination) and (each.weight or len(route.route) == 1) for each in route.route),
        also=of_route(route) if isinstance(route, HttpRoute) else (),
        elsewhere=bool(route.route) and all(each.destination.host != service.host for each in route.route),
    )


def _where(routing: VirtualService, route: HttpRoute | L4Route) -> Where:
    if isinstance(route, HttpRoute) and route.origin is not None:
        return where_of(route.origin, line=route.line)
    return named(routing, line=route.line)


def _goes(route: HttpRoute | L4Route) -> str:
    if isinstance(route, HttpRoute):
        if route.redirect is not None:
            return f"is redirected ({route.redirect.code})"
        if route.direct_response is not None:
            return f"gets a direct response {route.direct_response.status}"
        if route.delegate is not None:
            return f"is delegated to VirtualService {route.delegate.namespace}/{route.delegate.name}"
    failing = route.failing if isinstance(route, HttpRoute) else 0
    total = sum(one.weight for one in route.route) + failing
    shares = [_share(each, total) for each in route.route]
    shares += [f"no backend, status 500 ({100 * failing / total:g} %)"] if failing else []
    return "goes to " + ", ".join(shares)


def _share(each: WeightedDestination, total: int) -> str:
    share = f" ({100 * each.weight / total:g} %)" if total and each.weight != total else ""
    return f"{target(each.destination)}{share}"


def _condition(match: HttpMatch | L4Match) -> str:
    parts: list[str] = []
    if isinstance(match, HttpMatch):
        for word, wanted in (
            ("path", match.uri),
            ("method", match.method),
            ("authority", match.authority),
            ("scheme", match.scheme),
        ):
            parts += [f"{word} {_text(wanted)}"] if wanted is not None else []
        parts += [f"{_subject(name)} {_text(wanted)}" for name, wanted in match.headers]
        parts += [f"not {_subject(name)} {_text(wanted)}" for name, wanted in match.without_headers]
        parts += [f"query {name} {_text(wanted)}" for name, wanted in match.query_params]
    else:
        parts += [f"server name {', '.join(match.sni_hosts)}"] if match.sni_hosts else []
        parts += [f"to {', '.join(match.destination_subnets)}"] if match.destination_subnets else []
    parts += [f"port {match.port}"] if match.port else []
    parts += [f"callers with {labels(match.source_labels)}"] if match.source_labels else []
    parts += [f"callers in {match.source_namespace}"] if match.source_namespace else []
    return " and ".join(parts) or "always"


def _text(wanted: StringMatch) -> str:
    if wanted.kind is MatchKind.PRESENT:
        return "is present"
    word = {
        MatchKind.EXACT: "is",
        MatchKind.PREFIX: "starts with",
        MatchKind.PATH_PREFIX: "is or is below",
        MatchKind.REGEX: "matches",
    }[wanted.kind]
    return f"{word} {wanted.value}"


def labels(pairs: Labels | dict[str, str]) -> str:
    items = pairs.items() if isinstance(pairs, dict) else pairs
    return ",".join(f"{name}={value}" for name, value in items)


def _subset(subset: Subset, pods: list[Instance]) -> SubsetFacts:
    inside = tuple(pod.name for pod in pods if selects(subset.labels, pod.labels))
    return SubsetFacts(subset.name, dict(subset.labels), inside)


def _all(mesh: Mesh, kind: type[T]) -> Iterator[T]:
    """All values of this type in the mesh, both those that the user wrote and those derived from Gateway API
    objects."""
    yield from (value for _, values in mesh.values() for value in values if isinstance(value, kind))
    yield from (value for derived in mesh.derived() for value in derived.values if isinstance(value, kind))


def _subject(name: str) -> str:
    claim = claim_path(name)
    return f"claim {'.'.join(claim)}" if claim else f"header {name}"
