"""Hosts and addresses that two objects claim, names that lead back to themselves, and entries that lead to nobody."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts
from weft.analyze.finding import finding
from weft.base.problem import Problem
from weft.mesh.claims import strength
from weft.model.instance import Instance
from weft.model.service import Resolution, Service

_ENTRY = "ServiceEntry"


def of_claims(facts: Facts) -> Iterator[Problem]:
    entries = [service for service in sorted(facts.services, key=strength) if _kind(service) == _ENTRY]
    yield from _of_hosts(entries, facts)
    yield from _of_addresses(entries)
    yield from _of_nobody(entries)
    yield from _of_circles(facts)
    yield from _of_workload_entries(facts)


def _of_hosts(entries: list[Service], facts: Facts) -> Iterator[Problem]:
    for entry in entries:
        rivals = [each for each in facts.by_host[entry.host] if each is not entry and strength(each) < strength(entry)]
        for rival in sorted(rivals, key=strength):
            if _kind(rival) == _ENTRY and rival.namespace != entry.namespace:
                continue  # each may be for its own namespace
            what = (
                f"{entry.host} is the host of {_kind(rival)} {rival.namespace}/{rival.name} too, "
                "which decides: this one is not used"
            )
            hint = "write the ports and endpoints of one host into one ServiceEntry"
            yield finding("WFT0312", entry.origin, "spec.hosts", what, hint)
            break


def _of_addresses(entries: list[Service]) -> Iterator[Problem]:
    taken: dict[tuple[str, int], Service] = {}
    told = set()
    for entry in entries:
        raw = [port.number for port in entry.ports if not port.protocol.is_http and port.protocol.value not in _BY_NAME]
        for address in entry.addresses:
            for number in raw:
                first = taken.setdefault((address, number), entry)
                if first.origin != entry.origin and entry.origin not in told:
                    told.add(entry.origin)
                    what = (
                        f"{address}:{number} is the address of ServiceEntry {first.namespace}/{first.name} too, "
                        "and nothing else tells their connections apart"
                    )
                    yield finding("WFT0313", entry.origin, "spec.addresses", what, "give each an address of its own")


_BY_NAME = ("tls", "https")  # these are told apart by the name that the client asks for


def _of_nobody(entries: list[Service]) -> Iterator[Problem]:
    told = set()
    for entry in entries:
        fixed = entry.resolution is Resolution.STATIC and entry.selector is None and not entry.static_endpoints
        if fixed and entry.origin not in told:
            told.add(entry.origin)
            what = f"`resolution: STATIC` without `endpoints` or a `workloadSelector`: nobody answers for {entry.host}"
            yield finding("WFT0315", entry.origin, "spec.resolution", what, "list `endpoints`, or set DNS")


def _of_circles(facts: Facts) -> Iterator[Problem]:
    """An ExternalName is only another name. Followed from each, a way that comes back never ends."""
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
                "WFT0310", service.origin, "spec.externalName", f"it goes round in circles: {shown}", "name who answers"
            )


def _of_workload_entries(facts: Facts) -> Iterator[Problem]:
    entries = [(place, runner) for place, held in facts.runners.items() for runner in held if runner.instance.is_entry]
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
            what = f"no Service or ServiceEntry of namespace {place} selects its labels: nobody is sent there"
            yield finding("WFT0316", runner.instance.origin, "spec", what, "a ServiceEntry's `workloadSelector` does")
    for service in facts.services if selected else ():
        for runner in facts.selected(service.namespace, service.selector) if service.selector else ():
            if not runner.instance.can_answer(service.resolution):
                yield _of_address(runner.instance, service)


def _of_address(entry: Instance, service: Service) -> Problem:
    address, who = entry.addresses[0], f"{_kind(service)} {service.namespace}/{service.name}"
    what = f"{who} selects it and looks names up: it cannot call the socket {address}"
    hint = "a ServiceEntry with `resolution: STATIC` can"
    if entry.named:
        what = f"{who} selects it and calls addresses alone: nobody looks {address} up"
        hint = "write an address, or select it in a ServiceEntry with `resolution: DNS`"
    return finding("WFT0320", entry.origin, "spec.address", what, hint)


def _kind(service: Service) -> str:
    return service.origin.key.kind if service.origin is not None else ""
