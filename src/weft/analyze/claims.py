"""Findings about hosts and addresses that two objects define, ExternalName loops, ServiceEntries without endpoints,
and WorkloadEntries that no service selects or can call."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts
from weft.analyze.finding import finding
from weft.base.problem import Problem
from weft.mesh.claims import strength
from weft.mesh.service_entries import can_merge
from weft.model.instance import Instance
from weft.model.service import Resolution, Service

_ENTRY = "ServiceEntry"


def of_claims(facts: Facts) -> Iterator[Problem]:
    entries = [service for service in sorted(facts.services, key=strength) if _kind(service) == _ENTRY]
    yield from _of_hosts(entries, facts)
    yield from _of_addresses(entries)
    yield from _of_empty_entries(entries)
    yield from _of_circles(facts)
    yield from _of_workload_entries(facts)


def _of_hosts(entries: list[Service], facts: Facts) -> Iterator[Problem]:
    for entry in entries:
        rivals = [each for each in facts.by_host[entry.host] if each is not entry and strength(each) < strength(entry)]
        for rival in sorted(rivals, key=strength):
            if _kind(rival) == _ENTRY and (rival.namespace != entry.namespace or can_merge(rival, entry)):
                continue  # each of the two objects may apply to its own namespace only, or both are merged
            what = (
                f"{_kind(rival)} {rival.namespace}/{rival.name} has the host {entry.host} too and takes precedence: "
                "this ServiceEntry is not used for the host"
            )
            hint = "give both the same `resolution`, `workloadSelector` and `exportTo`: then they are merged"
            yield finding("WFT0312", entry.origin, "spec.hosts", what, hint)
            break


def _of_addresses(entries: list[Service]) -> Iterator[Problem]:
    taken: dict[tuple[str, int], Service] = {}
    reported = set()
    for entry in entries:
        raw = [port.number for port in entry.ports if not port.protocol.is_http and port.protocol.value not in _BY_NAME]
        for address in entry.addresses:
            for number in raw:
                first = taken.setdefault((address, number), entry)
                if first.origin != entry.origin and entry.origin not in reported:
                    reported.add(entry.origin)
                    what = (
                        f"ServiceEntry {first.namespace}/{first.name} has the address {address}:{number} too, "
                        "and proxies cannot distinguish the connections of the two ServiceEntries"
                    )
                    yield finding(
                        "WFT0313", entry.origin, "spec.addresses", what, "give each ServiceEntry an address of its own"
                    )


_BY_NAME = ("tls", "https")  # connections of these protocols are distinguished by SNI


def _of_empty_entries(entries: list[Service]) -> Iterator[Problem]:
    reported = set()
    for entry in entries:
        fixed = entry.resolution is Resolution.STATIC and entry.selector is None and not entry.static_endpoints
        if fixed and entry.origin not in reported:
            reported.add(entry.origin)
            what = f"`resolution: STATIC` without `endpoints` or a `workloadSelector`: calls to {entry.host} fail"
            yield finding(
                "WFT0315", entry.origin, "spec.resolution", what, "list `endpoints`, or set `resolution: DNS`"
            )


def _of_circles(facts: Facts) -> Iterator[Problem]:
    """Findings about ExternalName Services that form a loop: an ExternalName is only an alias, and the aliases of
    these Services lead back to themselves."""
    aliases = {
        service.host: service
        for service in facts.services
        if _kind(service) == "Service" and service.resolution is Resolution.DNS and service.static_endpoints
    }
    for host, service in aliases.items():
        way = [host]
        while (following := aliases[way[-1]].static_endpoints[0].address) in aliases and following not in way:
            way.append(following)
        if following == host:
            shown = " → ".join([*way, host])
            yield finding(
                "WFT0310",
                service.origin,
                "spec.externalName",
                f"ExternalName services form a loop: {shown}",
                "name a host with endpoints",
            )


def _of_workload_entries(facts: Facts) -> Iterator[Problem]:
    entries = [
        (place, runner) for place, runners in facts.runners.items() for runner in runners if runner.instance.is_entry
    ]
    if not entries:
        return
    selected = {
        (service.namespace, runner.name)
        for service in facts.services
        for runner in (facts.selected(service.namespace, service.selector) if service.selector else ())
        if runner.instance.is_entry
    }
    for place, runner in entries:
        if (place, runner.name) not in selected:
            what = (
                f"no Service or ServiceEntry of namespace {place} selects the labels of this WorkloadEntry: no calls "
                "are sent to it"
            )
            yield finding(
                "WFT0316",
                runner.instance.origin,
                "spec",
                what,
                "select its labels with the `workloadSelector` of a ServiceEntry",
            )
    for service in facts.services if selected else ():
        for runner in facts.selected(service.namespace, service.selector) if service.selector else ():
            if not runner.instance.can_answer(service.resolution):
                yield _of_address(runner.instance, service)


def _of_address(entry: Instance, service: Service) -> Problem:
    address, owner = entry.addresses[0], f"{_kind(service)} {service.namespace}/{service.name}"
    what = f"{owner} selects this WorkloadEntry, but resolves names, and so cannot call the socket {address}"
    hint = "use a ServiceEntry with `resolution: STATIC`"
    if entry.named:
        what = f"{owner} selects this WorkloadEntry, but calls only IP addresses and does not resolve {address}"
        hint = "write an IP address, or select the WorkloadEntry in a ServiceEntry with `resolution: DNS`"
    return finding("WFT0320", entry.origin, "spec.address", what, hint)


def _kind(service: Service) -> str:
    return service.origin.key.kind if service.origin is not None else ""
