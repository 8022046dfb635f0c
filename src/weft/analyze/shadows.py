"""Findings about routes and matches of a VirtualService that are never used, because a route or match above them
already matches every request or connection that they match. http routes below a route without a match are reported by
the parser."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from weft.analyze.facts import Facts
from weft.analyze.finding import finding
from weft.base.problem import Problem
from weft.model.virtual_service import (
    HttpMatch,
    HttpRoute,
    L4Match,
    L4Route,
    MatchKind,
    StringMatch,
    VirtualService,
)

_MOST = 300  # matches of one object: up to this number each is compared with all above it, beyond only with equal ones
_ANY_PATH = (
    StringMatch(MatchKind.PREFIX, "/"),
    StringMatch(MatchKind.REGEX, ".*"),
    StringMatch(MatchKind.REGEX, "/.*"),
)
_Named = tuple[tuple[str, StringMatch], ...]


class _Above(msgspec.Struct, frozen=True):
    match: HttpMatch
    route: int
    line: int


def of_shadows(facts: Facts) -> Iterator[Problem]:
    for routing in facts.virtual_services:
        if len(routing.http) > 1 or any(len(route.match) > 1 for route in routing.http):
            yield from _of_routing(routing)
        yield from _of_streams(routing, "tcp", routing.tcp)
        yield from _of_streams(routing, "tls", routing.tls)


def _of_routing(routing: VirtualService) -> Iterator[Problem]:
    above: list[_Above] = []
    equals: dict[HttpMatch, _Above] = {}
    for number, route in enumerate(routing.http):
        if not route.match:
            return  # this route matches everything; the parser reports the routes below
        mine = [msgspec.structs.replace(match, name="", stat_prefix="") for match in route.match]
        takers: dict[int, _Above] = {}
        for index, match in enumerate(mine):
            taker = equals.get(match) or (_taker(match, above, routing) if len(above) <= _MOST else None)
            if taker is not None:
                takers[index] = taker
            elif route.delegate is None:  # a delegate may match less than its root
                taking = _Above(match, number, route.line)
                above.append(taking)
                equals[match] = taking
        yield from _problems(routing, number, route, takers)


def _of_streams(routing: VirtualService, kind: str, routes: tuple[L4Route, ...]) -> Iterator[Problem]:
    """Findings about `tcp` or `tls` routes. Envoy chooses among them by server name and address, so a route hides a
    route below it only if it matches every server name and address, or lists those of the lower route."""
    above: list[tuple[L4Match, int, int]] = []  # each match above, with the number and the line of its route
    for number, route in enumerate(routes):
        takers = {
            index: taker
            for index, match in enumerate(route.match or (L4Match(),))
            if (taker := next((each for each in above if _takes(each[0], match, routing)), None)) is not None
        }
        if len(takers) == len(route.match or (L4Match(),)):
            _, first, at = takers[0]
            line = f" (line {at})" if at else ""
            what = f"this route is never used: {kind}[{first}]{line} matches every connection that it matches"
            hint = f"move this route above {kind}[{first}]"
            yield finding("WFT0111", routing.origin, f"spec.{kind}[{number}]", what, hint, line=route.line)
        else:
            for index, (_, first, _) in takers.items():
                what = f"this match never applies: {kind}[{first}] covers it"
                field = f"spec.{kind}[{number}].match[{index}]"
                yield finding("WFT0112", routing.origin, field, what, "remove this match", line=route.line)
        above += ((match, number, route.line) for match in route.match or (L4Match(),))


def _takes(wide: L4Match, narrow: L4Match, routing: VirtualService) -> bool:
    """Whether `wide`, a match above `narrow` in the same VirtualService, matches every connection that `narrow`
    matches, so that `narrow` is never used."""
    every = not wide.sni_hosts and not wide.destination_subnets
    return (
        set(narrow.gateways or routing.gateways) <= set(wide.gateways or routing.gateways)
        and wide.port in (0, narrow.port)
        and wide.source_namespace in ("", narrow.source_namespace)
        and set(wide.source_labels) <= set(narrow.source_labels)
        and (
            every
            or (
                bool(narrow.sni_hosts) >= bool(wide.sni_hosts)
                and set(narrow.sni_hosts) <= set(wide.sni_hosts)
                and bool(narrow.destination_subnets) == bool(wide.destination_subnets)
                and set(narrow.destination_subnets) <= set(wide.destination_subnets)
            )
        )
    )


def _problems(routing: VirtualService, number: int, route: HttpRoute, takers: dict[int, _Above]) -> Iterator[Problem]:
    others = [taker for taker in takers.values() if taker.route != number]
    if len(others) == len(route.match):
        first = others[0]
        line = f" (line {first.line})" if first.line else ""
        what = f"this route is never used: http[{first.route}]{line} matches every request that it matches"
        field = f"spec.http[{number}]"
        yield finding(
            "WFT0111", routing.origin, field, what, f"move this route above http[{first.route}]", line=route.line
        )
        return
    for index, taker in takers.items():
        above = "a match above it" if taker.route == number else f"http[{taker.route}]"
        what = f"this match never applies: {above} covers it"
        field = f"spec.http[{number}].match[{index}]"
        yield finding("WFT0112", routing.origin, field, what, "remove this match", line=route.line)


def _taker(match: HttpMatch, above: list[_Above], routing: VirtualService) -> _Above | None:
    return next((each for each in above if _covers(each.match, match, routing)), None)


def _covers(wide: HttpMatch, narrow: HttpMatch, routing: VirtualService) -> bool:
    """Whether every request that matches `narrow` also matches `wide`, another match of the same VirtualService."""
    return (
        set(narrow.gateways or routing.gateways) <= set(wide.gateways or routing.gateways)
        and wide.port in (0, narrow.port)
        and wide.source_namespace in ("", narrow.source_namespace)
        and set(wide.source_labels) <= set(narrow.source_labels)
        and _path_within(wide, narrow)
        and _within(wide.scheme, narrow.scheme)
        and _within(wide.method, narrow.method)
        and _within(wide.authority, narrow.authority)
        and _all_within(wide.headers, narrow.headers)
        and set(wide.without_headers) <= set(narrow.without_headers)
        and _all_within(wide.query_params, narrow.query_params)
    )


def _path_within(wide: HttpMatch, narrow: HttpMatch) -> bool:
    if wide.uri is None or wide.uri in _ANY_PATH:
        return True
    if narrow.uri is None or (narrow.ignore_uri_case and not wide.ignore_uri_case):
        return False
    if not wide.ignore_uri_case:
        return _within(wide.uri, narrow.uri)
    if MatchKind.REGEX in (wide.uri.kind, narrow.uri.kind):
        return False
    return _within(_lower(wide.uri), _lower(narrow.uri))


def _lower(match: StringMatch) -> StringMatch:
    return StringMatch(match.kind, match.value.lower())


def _all_within(wide: _Named, narrow: _Named) -> bool:
    there = dict(narrow)
    return all(name in there and _within(match, there[name]) for name, match in wide)


def _within(wide: StringMatch | None, narrow: StringMatch | None) -> bool:
    if wide is None or wide == narrow:
        return True
    if narrow is None:
        return False
    if wide.kind is MatchKind.PRESENT:
        return True
    exact_or_prefix = narrow.kind in (MatchKind.EXACT, MatchKind.PREFIX)
    return wide.kind is MatchKind.PREFIX and exact_or_prefix and narrow.value.startswith(wide.value)
