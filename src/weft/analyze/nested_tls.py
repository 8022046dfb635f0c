"""Findings about TLS inside TLS: connections that are already TLS are passed through to a port to which a rule makes
the proxy originate TLS. The server then finds a second handshake inside the connection.

Rule: nothing is reported if another rule for the host has no TLS, or if routes without TLS also lead to the port:
the TLS may be intended for those.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from weft.analyze.facts import Facts
from weft.analyze.finding import finding
from weft.base.problem import Problem
from weft.mesh.claims import patterns
from weft.model.destination_rule import ClientTlsMode, DestinationRule, effective
from weft.model.scope import exported
from weft.model.service import Protocol, Service, ServicePort
from weft.model.virtual_service import Destination, VirtualService

_FOREIGN = (ClientTlsMode.SIMPLE, ClientTlsMode.MUTUAL)
_SEALED = (Protocol.TLS, Protocol.HTTPS)
_THEN = "and this rule originates TLS once more: the server gets TLS inside TLS, and handshakes fail"


class _Led(NamedTuple):
    """The destinations of all routes by host, so that the check stays fast in large meshes. `sealed`: destinations
    of routes that pass TLS through. `opened`: destinations of all other routes."""

    sealed: dict[str, list[tuple[VirtualService, Destination]]]
    opened: dict[str, list[Destination]]


def of_nested_tls(facts: Facts) -> Iterator[Problem]:
    rules = [*facts.rules, *(rule for derived in facts.standard for rule in derived.rules)]
    asking = [rule for rule in rules if _asks(rule)]
    if not asking:
        return
    led = _led(facts)
    by_host: dict[str, list[DestinationRule]] = defaultdict(list)
    for rule in rules:
        by_host[rule.host].append(rule)
    for rule in asking:
        for service in facts.services_of(rule.host):
            others = [each for pattern in patterns(service.host) for each in by_host.get(pattern, ())]
            for port in service.ports:
                if all(_subsets(each, port) for each in others):
                    yield from _at(rule, service, port, led, facts)


def _led(facts: Facts) -> _Led:
    led = _Led(defaultdict(list), defaultdict(list))
    for routing in (*facts.virtual_services, *(each for derived in facts.standard for each in derived.routings)):
        for route in routing.http:
            for part in route.route:
                led.opened[part.destination.host].append(part.destination)
            for mirror in route.mirrors:
                led.opened[mirror.destination.host].append(mirror.destination)
        for stream in routing.tcp:
            for part in stream.route:
                led.opened[part.destination.host].append(part.destination)
        for stream in routing.tls:
            for part in stream.route:
                led.sealed[part.destination.host].append((routing, part.destination))
    return led


def _at(rule: DestinationRule, service: Service, port: ServicePort, led: _Led, facts: Facts) -> Iterator[Problem]:
    at, subsets = f"port {port.number} of {service.host}", _subsets(rule, port)
    passing = (
        routing
        for routing, each in led.sealed.get(service.host, ())
        if (each.port == port.number or (not each.port and len(service.ports) == 1))
        and each.subset in subsets
        and exported(rule.export_to, owner=rule.namespace, viewer=routing.namespace)
    )
    if (routing := next(passing, None)) is not None:
        what = f"TLS for {at} is passed through by the tls route of {_named(routing)}, {_THEN}"
        hint = "terminate the callers' TLS at the gateway, or set no `tls` for that port"
        yield finding("WFT0224", rule.origin, "spec", what, hint)
    elif port.protocol in _SEALED and not rule.attached and "" in subsets:
        # A route without a port leads to the port that was called.
        opened = any(each.port in (0, port.number) for each in _opened(service.host, led))
        if not opened and not facts.spoken.get(port.number):
            what = f"{at} is declared as {port.protocol}, so callers send TLS themselves, {_THEN}"
            hint = (
                "set no `tls` for this port; give callers without TLS a port of their own, with `targetPort: "
                f"{port.number}`"
            )
            yield finding("WFT0224", rule.origin, "spec", what, hint)


def _opened(host: str, led: _Led) -> Iterator[Destination]:
    """The destinations with this host, or with any host that this wildcard covers, of routes that do not pass TLS
    through."""
    yield from led.opened.get(host, ())
    if host.startswith("*"):
        for each, destinations in led.opened.items():
            if each != host and each.endswith(host[1:]):
                yield from destinations


def _asks(rule: DestinationRule) -> bool:
    policies = (rule.policy, *(subset.policy for subset in rule.subsets))
    levels = (level for policy in policies if policy for level in (policy, *(entry for _, entry in policy.ports)))
    return any(level.tls is not None and level.tls.mode in _FOREIGN for level in levels)


def _subsets(rule: DestinationRule, port: ServicePort) -> set[str]:
    """The names of the subsets for which a rule makes proxies originate TLS at a port; "" stands for calls without a
    subset. Mutual TLS of the mesh does not count, nor does a rule with a tunnel, whose TLS is for the tunnel's
    proxy."""
    found = ((subset, effective(rule, port.number, subset)) for subset in (None, *rule.subsets))
    return {
        subset.name if subset else ""
        for subset, policy in found
        if policy.tls is not None and policy.tls.mode in _FOREIGN and not policy.tunnel
    }


def _named(routing: VirtualService) -> str:
    return (
        str(routing.origin.key) if routing.origin is not None else f"VirtualService {routing.namespace}/{routing.name}"
    )
