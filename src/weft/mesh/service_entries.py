"""Merges ServiceEntries of one namespace that have the same host, as istiod does. `registry.py` owns the index.

Rule: ServiceEntries are merged if they have the same resolution, workload selector and `exportTo`. The oldest decides
everything but ports, addresses and endpoints, which are those of all; if two declare the same port, the older one's
declaration counts. An endpoint serves only the ports that its own ServiceEntry names.
"""

from __future__ import annotations

from collections import defaultdict

from msgspec.structs import replace

from weft.mesh.claims import strength
from weft.model.service import Service, ServicePort

KIND = "ServiceEntry"


class ServiceEntries:
    def __init__(self) -> None:
        self._by_host: dict[tuple[str, str], list[Service]] = defaultdict(list)  # by namespace and host

    def add(self, service: Service) -> tuple[list[Service], list[Service]]:
        """Add one host of a ServiceEntry. Returns (gone, new): the merged services that it replaces, and those that
        replace them."""
        return self._change(service, [*self._by_host[(service.namespace, service.host)], service])

    def remove(self, service: Service) -> tuple[list[Service], list[Service]]:
        """Remove one host of a ServiceEntry. Returns (gone, new), as `add` does."""
        entries = list(self._by_host[(service.namespace, service.host)])
        entries.remove(service)
        return self._change(service, entries)

    def _change(self, service: Service, entries: list[Service]) -> tuple[list[Service], list[Service]]:
        place = (service.namespace, service.host)
        before, after = merged(self._by_host[place]), merged(entries)
        self._by_host[place] = sorted(entries, key=strength)
        if not entries:
            del self._by_host[place]
        return [each for each in before if each not in after], [each for each in after if each not in before]


def is_entry(service: Service) -> bool:
    return service.origin is not None and service.origin.key.kind == KIND


def can_merge(one: Service, other: Service) -> bool:
    """Whether two ServiceEntries of one namespace with the same host are merged."""
    return (one.resolution, one.selector, one.export_to) == (other.resolution, other.selector, other.export_to)


def merged(entries: list[Service]) -> list[Service]:
    """The services of one host in one namespace, the oldest first. Entries that cannot be merged stay apart."""
    groups: list[list[Service]] = []
    for entry in sorted(entries, key=strength):
        group = next((each for each in groups if can_merge(each[0], entry)), None)
        if group is None:
            groups.append([entry])
        else:
            group.append(entry)
    return [group[0] if len(group) == 1 else _joined(group) for group in groups]


def _joined(group: list[Service]) -> Service:
    ports: dict[int, ServicePort] = {}
    for entry in group:
        for port in entry.ports:
            ports.setdefault(port.number, port)
    return replace(
        group[0],
        ports=tuple(ports.values()),
        addresses=tuple(dict.fromkeys(address for entry in group for address in entry.addresses)),
        static_endpoints=tuple(
            replace(endpoint, serves=tuple(port.name for port in entry.ports))
            for entry in group
            for endpoint in entry.static_endpoints
        ),
        subject_alt_names=tuple(dict.fromkeys(name for entry in group for name in entry.subject_alt_names)),
        merged=tuple(entry.origin for entry in group[1:] if entry.origin is not None),
    )
