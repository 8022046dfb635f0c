"""Findings about Services that select no workload, whose `targetPort` no workload has, or that have the address of
another Service."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts, Runner
from weft.analyze.finding import finding, meant_labels, written
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean
from weft.model.names import Labels
from weft.model.service import Protocol, Service, ServicePort


def of_services(facts: Facts) -> Iterator[Problem]:
    seen = set()  # the hosts of one ServiceEntry are one object
    for service in facts.services:
        if facts.runs and service.selector and service.origin not in seen:
            seen.add(service.origin)
            yield from _of_selection(service, service.selector, facts)
    yield from _of_addresses(facts)


def _of_selection(service: Service, selector: Labels, facts: Facts) -> Iterator[Problem]:
    behind = facts.selected(service.namespace, selector)
    if not behind:
        what = (
            f"no workload of namespace {service.namespace} has the labels {written(selector)}: calls to the service "
            "fail"
        )
        yield finding(
            "WFT0301", service.origin, f"spec.{_field(service)}", what, _selection_hint(service, selector, facts)
        )
        return
    for index, port in enumerate(service.ports):
        if port.protocol is not Protocol.UDP:
            yield from _of_target(service, index, port, behind)


def _field(service: Service) -> str:
    entry = service.origin is not None and service.origin.key.kind == "ServiceEntry"
    return "workloadSelector" if entry else "selector"


def _selection_hint(service: Service, selector: Labels, facts: Facts) -> str:
    elsewhere = sorted(namespace for namespace in facts.runners if facts.selected(namespace, selector))
    if elsewhere:
        return (
            f"namespace {elsewhere[0]} has such workloads, but a selector matches only workloads of its own namespace"
        )
    return meant_labels(selector, (runner.labels for runner in facts.runners.get(service.namespace, ())))


def _of_target(service: Service, index: int, port: ServicePort, behind: tuple[Runner, ...]) -> Iterator[Problem]:
    ports = {pair for runner in behind for pair in runner.ports or runner.instance.ports}
    names = {name for name, _ in ports if name}
    subject = f"no workload of this service ({', '.join(sorted(runner.name for runner in behind)[:3])})"
    field = f"spec.ports[{index}].targetPort"
    if isinstance(port.target, str) and port.target:
        if port.target not in names and not any(runner.instance.is_entry for runner in behind):
            what = f"{subject} has a port named `{port.target}`: calls to port {port.number} fail"
            yield finding(
                "WFT0302",
                service.origin,
                field,
                what,
                did_you_mean(port.target, names) or "no port of these workloads has a name",
            )
        return
    if any(runner.ports is None for runner in behind):
        return  # a workload without declared ports may listen there
    target = port.target or (0 if port.name in names else port.number)
    if target and target not in {number for _, number in ports}:
        there = ", ".join(str(number) for number in sorted({number for _, number in ports}))
        missing = "" if port.target else " (without `targetPort`, the target is the Service's own port)"
        what = f"{subject} declares port {target}{missing}"
        hint = f"declared: {there}; correct `targetPort`, or add the port to the Workload"
        yield finding("WFT0303", service.origin, field, what, hint)


def _of_addresses(facts: Facts) -> Iterator[Problem]:
    claims: dict[tuple[str, int], Service] = {}
    for service in sorted(facts.services, key=lambda each: (each.created or "9999", each.namespace, each.name)):
        if service.origin is None or service.origin.key.kind != "Service":
            continue
        taken = {
            (address, port.number): first
            for address in service.addresses
            for port in service.ports
            if (first := claims.setdefault((address, port.number), service)) is not service
        }
        for (address, number), first in taken.items():
            what = f"Service {first.namespace}/{first.name} has the address {address}:{number} too"
            yield finding(
                "WFT0304", service.origin, "spec.clusterIP", what, "use another `clusterIP`, or leave `clusterIP` out"
            )
