"""Gateways that nothing serves, and those that want the same host and port of the same workloads."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts
from weft.analyze.finding import finding, meant_labels, written
from weft.base.problem import Problem
from weft.model.gateway import Gateway
from weft.model.names import Labels
from weft.model.service import Protocol

_Door = tuple[Labels, int, str]  # the workloads, the port, the address it is bound to


def of_gateways(facts: Facts) -> Iterator[Problem]:
    hosts: dict[tuple[_Door, str], Gateway] = {}
    speaking: dict[_Door, tuple[Gateway, bool]] = {}
    for gateway in sorted(facts.gateways.values(), key=_age):
        yield from _of_selector(gateway, facts)
        for index, server in enumerate(gateway.servers):
            door = (gateway.selector, server.port.number, server.bind)
            encrypted = server.port.protocol in (Protocol.TLS, Protocol.HTTPS)
            other, was = speaking.setdefault(door, (gateway, encrypted))
            if was != encrypted:
                whose = f"Gateway {other.namespace}/{other.name}" if other is not gateway else "a server above"
                what = f"port {server.port.number} is {server.port.protocol.value} here, and not to {whose}"
                yield finding(
                    "WFT0703", gateway.origin, f"spec.servers[{index}].port", what, "give each protocol a port"
                )
                continue
            for place, host in enumerate(server.hosts):
                name = host.rpartition("/")[2]
                first = hosts.setdefault((door, name), gateway)
                if first is not gateway:
                    what = (
                        f"{name} at port {server.port.number} of the same workloads is served for "
                        f"Gateway {first.namespace}/{first.name} already"
                    )
                    field = f"spec.servers[{index}].hosts[{place}]"
                    yield finding("WFT0702", gateway.origin, field, what, "let each host and port have one Gateway")


def _of_selector(gateway: Gateway, facts: Facts) -> Iterator[Problem]:
    """A Gateway's workloads may be in any namespace."""
    if not facts.runs or not gateway.selector:
        return
    if not any(facts.selected(place, gateway.selector) for place in facts.runners):
        what = f"no workload has the labels {written(gateway.selector)}: nothing serves this"
        known = (runner.labels for held in facts.runners.values() for runner in held)
        yield finding("WFT0701", gateway.origin, "spec.selector", what, meant_labels(gateway.selector, known))


def _age(gateway: Gateway) -> tuple[str, str, str]:
    return (gateway.created or "9999", gateway.namespace, gateway.name)
