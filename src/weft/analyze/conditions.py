"""Findings about matches of routes that never apply, because they are for a port that the host does not have, or for
callers that do not exist. Only matches for sidecars (gateway `mesh`) are checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from weft.analyze.facts import Facts
from weft.analyze.finding import finding, meant_labels, written
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean
from weft.model.virtual_service import MESH, HttpMatch, L4Match, VirtualService


class Placed(NamedTuple):
    kind: str  # kind of the match's route: http, tls or tcp
    field: str
    line: int  # line of the match's route
    match: HttpMatch | L4Match


def of_conditions(facts: Facts) -> Iterator[Problem]:
    for routing in facts.virtual_services:
        if MESH not in routing.gateways:
            continue
        services = [service for host in routing.hosts for service in facts.services_of(host)]
        ports = {port.number for service in services for port in service.ports}
        for _, field, line, match in matches(routing):
            if match.gateways and "mesh" not in match.gateways:
                continue
            if match.port and ports and match.port not in ports:
                listed = ", ".join(map(str, sorted(ports)[:12]))
                what = f"this match never applies: {routing.hosts[0]} has no port {match.port}"
                yield finding("WFT0118", routing.origin, f"{field}.port", what, f"it has {listed}", line=line)
            yield from _of_callers(routing, field, line, match, facts)


def _of_callers(
    routing: VirtualService, field: str, line: int, match: HttpMatch | L4Match, facts: Facts
) -> Iterator[Problem]:
    if not facts.runs:
        return
    namespace = match.source_namespace
    if namespace and namespace not in facts.runners and namespace not in facts.declared:
        what = f"this match never applies: no workload runs in namespace {namespace}"
        hint = did_you_mean(namespace, facts.runners)
        yield finding("WFT0119", routing.origin, f"{field}.sourceNamespace", what, hint, line=line)
        return
    labels = match.source_labels
    places: Iterable[str] = (namespace,) if namespace else facts.runners
    if labels and not any(facts.selected(place, labels) for place in places):
        what = f"this match never applies: no workload has the labels {written(labels)}"
        known = (runner.labels for place in places for runner in facts.runners.get(place, ()))
        hint = meant_labels(labels, known)
        yield finding("WFT0119", routing.origin, f"{field}.sourceLabels", what, hint, line=line)


def matches(routing: VirtualService) -> Iterator[Placed]:
    for number, route in enumerate(routing.http):
        for index, match in enumerate(route.match):
            yield Placed("http", f"spec.http[{number}].match[{index}]", route.line, match)
    for name, streams in (("tls", routing.tls), ("tcp", routing.tcp)):
        for number, stream in enumerate(streams):
            for index, condition in enumerate(stream.match):
                yield Placed(name, f"spec.{name}[{number}].match[{index}]", stream.line, condition)
