"""Which services there are, which instances, and who stands behind whom: kept up change by change, so that a pod which
comes or goes costs the same in a mesh of ten services and of ten thousand.

`mesh.py` owns it, and adds what rules and policies say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from weft.model.claims import Claims
from weft.model.instance import Instance
from weft.model.names import Labels, selects
from weft.model.service import Service
from weft.model.standing import Members, Standing, written_standing

_Selection = tuple[str, str, Labels]  # a host, and whom one of its claims selects in its namespace


class Registry:
    def __init__(self) -> None:
        self.services: Claims[Service] = Claims()  # by host
        self._selectors: dict[tuple[str, tuple[str, str]], set[str]] = defaultdict(set)  # (namespace, pair) → hosts
        self._instances: dict[str, dict[str, Instance]] = defaultdict(dict)  # namespace → name → instance
        self._members: dict[_Selection, Members] = {}  # whom a service selects

    def add(self, service: Service) -> None:
        self.services.add(service.host, service)
        if service.selector:
            self._selectors[(service.namespace, service.selector[0])].add(service.host)
            self._members[_selection(service)] = members = Members()
            for instance in self.instances(service.namespace):
                if selects(service.selector, instance.labels):
                    members.put(instance)

    def remove(self, service: Service) -> None:
        self.services.discard(service.host, service)
        if service.selector:
            # Another object of the namespace may claim the same host, as while a ServiceEntry gets another name.
            left = [each for each in self.services.to(service.host) if each.namespace == service.namespace]
            if all(each.selector != service.selector for each in left):
                del self._members[_selection(service)]
            if not any(each.selector and each.selector[0] == service.selector[0] for each in left):
                self._forget_selector((service.namespace, service.selector[0]), service.host)

    def move(self, before: Instance | None, after: Instance | None) -> dict[Service, bool]:
        """Put an instance in the place of what it was; None: it is new, or gone. Returns every service that selects
        either, and whether its standing is another now."""
        standings = {
            service: self.standing(service)
            for instance in (before, after)
            if instance is not None
            for service in self.selecting(instance)
        }
        for service in standings:
            members = self._members[_selection(service)]
            if before is not None:
                members.discard(before.name)
            if after is not None and selects(service.selector or (), after.labels):
                members.put(after)
        if before is not None:
            self._instances[before.namespace].pop(before.name, None)
            if not self._instances[before.namespace]:
                del self._instances[before.namespace]
        if after is not None:
            self._instances[after.namespace][after.name] = after
        return {service: self.standing(service) != standing for service, standing in standings.items()}

    def instances(self, namespace: str) -> Iterable[Instance]:
        return self._instances.get(namespace, {}).values()

    def members(self, service: Service) -> Members | None:
        """None: it selects nobody, and its endpoints are written down."""
        return self._members.get(_selection(service))

    def standing(self, service: Service) -> Standing:
        members = self.members(service)
        return members.standing(service) if members is not None else written_standing(service)

    def selecting(self, instance: Instance) -> list[Service]:
        """The services of its namespace that select an instance."""
        hosts = {host for pair in instance.labels for host in self._selectors.get((instance.namespace, pair), ())}
        return [
            service
            for host in hosts
            for service in self.services.to(host)
            if service.namespace == instance.namespace
            and service.selector
            and selects(service.selector, instance.labels)
        ]

    def _forget_selector(self, place: tuple[str, tuple[str, str]], host: str) -> None:
        self._selectors[place].discard(host)
        if not self._selectors[place]:
            del self._selectors[place]


def _selection(service: Service) -> _Selection:
    return (service.host, service.namespace, service.selector or ())
