"""What is asked for in vain where sidecars call the very address that their callers name: behind a headless service,
or a host without resolution. Whom a subset holds or a balancer would choose makes no difference there. Gateways choose
among a headless service's pods, so nothing is said of what they are led to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft.analyze.facts import Facts
from weft.analyze.finding import finding
from weft.base.problem import Problem
from weft.model.destination_rule import LoadBalancer, SimpleBalancer, levels
from weft.model.service import Resolution, Service
from weft.model.virtual_service import HttpRoute, L4Route, VirtualService, destinations


def of_addresses(facts: Facts) -> Iterator[Problem]:
    by_address = {service.host for service in facts.services if _is_called_by_address(service)}
    by_address -= {service.host for service in facts.services if not _is_called_by_address(service)}
    if by_address:
        yield from _of_subsets(facts, by_address)
        yield from _of_balancing(facts, by_address)


def _of_subsets(facts: Facts, by_address: set[str]) -> Iterator[Problem]:
    narrow = {(rule.host, subset.name) for rule in facts.rules for subset in rule.subsets if subset.labels}
    for routing in facts.virtual_services:
        if not routing.hosts or "mesh" not in routing.gateways:  # whom a delegate is for, others say
            continue
        kinds: dict[str, Sequence[HttpRoute | L4Route]] = {"http": routing.http, "tls": routing.tls, "tcp": routing.tcp}
        for name, routes in kinds.items():
            for number, route in enumerate(routes):
                if not _is_for_sidecars(route):
                    continue
                for index, part in enumerate(route.route):
                    host, subset = part.destination.host, part.destination.subset
                    if host in by_address and (host, subset) in narrow:
                        what = f"{host} is called by the address that a caller names, whether or not it is in {subset}"
                        field = f"spec.{name}[{number}].route[{index}].destination.subset"
                        hint = "a Service with a cluster IP chooses whom to call"
                        yield finding("WFT0220", routing.origin, field, what, hint, line=part.line or route.line)


def _of_balancing(facts: Facts, by_address: set[str]) -> Iterator[Problem]:
    never = {service.host for service in facts.services if service.resolution is Resolution.NONE}
    at_gateways = {host for routing in facts.virtual_services if _is_at_gateways(routing) for host in _led_to(routing)}
    for rule in facts.rules:
        idle = rule.host in by_address and (rule.host in never or rule.host not in at_gateways)
        if idle and any(_chooses(level.load_balancer) for level in levels(rule)):
            what = f"{rule.host} is called by the address that a caller names: `loadBalancer` has no effect"
            hint = "a Service with a cluster IP chooses whom to call"
            yield finding("WFT0221", rule.origin, "spec", what, hint)


def _is_called_by_address(service: Service) -> bool:
    return service.headless or service.resolution is Resolution.NONE


def _is_for_sidecars(route: HttpRoute | L4Route) -> bool:
    return not route.match or any(not match.gateways or "mesh" in match.gateways for match in route.match)


def _is_at_gateways(routing: VirtualService) -> bool:
    return not routing.hosts or any(gateway != "mesh" for gateway in routing.gateways)


def _led_to(routing: VirtualService) -> Iterator[str]:
    return (destination.host for _, destination in destinations(routing))


def _chooses(balancer: LoadBalancer | None) -> bool:
    if balancer is None:
        return False
    simple = balancer.simple not in (None, SimpleBalancer.PASSTHROUGH)
    return simple or balancer.consistent_hash is not None or balancer.warmup is not None
