"""Findings about tunnels of DestinationRules that are not used. Only connections of tcp and tls routes, and of ports
that carry no HTTP, use the tunnel; requests of an http route are sent to the rule's host without it."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts
from weft.analyze.finding import finding
from weft.base.problem import Problem
from weft.mesh.claims import strength
from weft.model.destination_rule import DestinationRule, Tunnel, effective
from weft.model.virtual_service import Destination, WeightedDestination


def of_tunnels(facts: Facts) -> Iterator[Problem]:
    rules = {rule.host: rule for rule in sorted(facts.rules, key=strength, reverse=True) if _opens_tunnel(rule)}
    if not rules:
        return
    yield from _of_use(rules, facts)
    for routing in facts.virtual_services:
        for number, route in enumerate(routing.http):
            for index, part in enumerate(route.route):
                if _tunnel(rules, part.destination):
                    what = (
                        f"requests of an http route do not go through the tunnel that a DestinationRule opens "
                        f"for {part.destination.host}: they are sent to that host itself"
                    )
                    field = f"spec.http[{number}].route[{index}].destination"
                    hint = "use a tcp or tls route, or a subset without `tunnel`"
                    yield finding("WFT0217", routing.origin, field, what, hint, line=part.line or route.line)
        for name, routes in (("tls", routing.tls), ("tcp", routing.tcp)):
            for number, stream in enumerate(routes):
                if len({_tunnel(rules, part.destination) for part in _taking_part(stream.route)}) > 1:
                    first = _taking_part(stream.route)[0].destination.host
                    what = (
                        "the destinations of this route have different tunnels, and a proxy opens one per route: all "
                        f"connections use the tunnel of {first}"
                    )
                    hint = "configure the same tunnel for all destinations"
                    yield finding(
                        "WFT0218", routing.origin, f"spec.{name}[{number}].route", what, hint, line=stream.line
                    )


def _of_use(rules: dict[str, DestinationRule], facts: Facts) -> Iterator[Problem]:
    reached = {
        part.destination.host
        for routing in facts.virtual_services
        for stream in (*routing.tls, *routing.tcp)
        for part in stream.route
    }
    for host, rule in rules.items():
        ports = [port for service in facts.services_of(host) for port in service.ports]
        if ports and host not in reached and all(port.protocol.is_http for port in ports):
            what = f"no connection goes through the tunnel: {host} carries HTTP, and no tcp or tls route leads to it"
            hint = "route the connections that should use the tunnel by a `tcp` or `tls` route of a VirtualService"
            yield finding("WFT0217", rule.origin, "spec", what, hint)


def _opens_tunnel(rule: DestinationRule) -> bool:
    return any(
        policy is not None and policy.tunnel for policy in (rule.policy, *(each.policy for each in rule.subsets))
    )


def _tunnel(rules: dict[str, DestinationRule], destination: Destination) -> Tunnel | None:
    rule = rules.get(destination.host)
    subset = next((each for each in rule.subsets if each.name == destination.subset), None) if rule else None
    return effective(rule, destination.port, subset).tunnel


def _taking_part(route: tuple[WeightedDestination, ...]) -> tuple[WeightedDestination, ...]:
    return tuple(part for part in route if part.weight > 0) or route[:1]
