"""Findings about subsets and load balancing that have no effect, because sidecars call the address that the application
chose: for a headless service, or a host with `resolution: NONE`. Gateways do choose among the pods of a headless
service, and so do sidecars if a route of another host leads to it; these cases are not reported."""

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
    never = _never_chosen(facts)
    for routing in facts.virtual_services:
        if not routing.hosts or "mesh" not in routing.gateways:  # a delegate has the hosts of its root
            continue
        kinds: dict[str, Sequence[HttpRoute | L4Route]] = {"http": routing.http, "tls": routing.tls, "tcp": routing.tcp}
        for name, routes in kinds.items():
            for number, route in enumerate(routes):
                if not _is_for_sidecars(route):
                    continue
                for index, part in enumerate(route.route):
                    host, subset = part.destination.host, part.destination.subset
                    own = (
                        host in never or host in routing.hosts
                    )  # for routes of other hosts, sidecars choose among the pods of a headless service
                    if host in by_address and own and (host, subset) in narrow:
                        what = (
                            f"sidecars call {host} at the address that the application chose, whether or not it is in "
                            f"subset {subset}"
                        )
                        field = f"spec.{name}[{number}].route[{index}].destination.subset"
                        hint = "use a Service with a cluster IP: for it, sidecars choose the endpoint"
                        yield finding("WFT0220", routing.origin, field, what, hint, line=part.line or route.line)


def _of_balancing(facts: Facts, by_address: set[str]) -> Iterator[Problem]:
    never = _never_chosen(facts)
    chosen = {host for routing in facts.virtual_services for host in _led_to(routing) if _is_chosen(routing, host)}
    for rule in facts.rules:
        idle = rule.host in by_address and (rule.host in never or rule.host not in chosen)
        if idle and any(_chooses(level.load_balancer) for level in levels(rule)):
            what = f"sidecars call {rule.host} at the address that the application chose: `loadBalancer` has no effect"
            hint = "use a Service with a cluster IP: for it, sidecars choose the endpoint"
            yield finding("WFT0221", rule.origin, "spec", what, hint)


def _is_called_by_address(service: Service) -> bool:
    return service.headless or service.resolution is Resolution.NONE


def _is_for_sidecars(route: HttpRoute | L4Route) -> bool:
    return not route.match or any(not match.gateways or "mesh" in match.gateways for match in route.match)


def _never_chosen(facts: Facts) -> set[str]:
    return {service.host for service in facts.services if service.resolution is Resolution.NONE}


def _is_chosen(routing: VirtualService, host: str) -> bool:
    """Whether a proxy chooses the pod when a route of `routing` leads to the headless service `host`. Gateways do,
    and so do sidecars if the route belongs to another host; otherwise the application has chosen the pod."""
    return host not in routing.hosts or any(gateway != "mesh" for gateway in routing.gateways)


def _led_to(routing: VirtualService) -> Iterator[str]:
    return (destination.host for _, destination in destinations(routing))


def _chooses(balancer: LoadBalancer | None) -> bool:
    if balancer is None:
        return False
    simple = balancer.simple not in (None, SimpleBalancer.PASSTHROUGH)
    return simple or balancer.consistent_hash is not None or balancer.warmup is not None
