"""Index of EndpointSlices by their Service, and by the pods and addresses that they list. A changed slice costs time
proportional to its length; a changed pod costs time proportional to the number of Services that list the pod.
`registry.py` owns it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from weft.model.endpoint_slice import EndpointSlice

_Place = tuple[str, str]  # a namespace, and a name in it


class Slices:
    def __init__(self) -> None:
        self._by_service: dict[_Place, dict[str, EndpointSlice]] = defaultdict(dict)
        self._naming: dict[_Place, Counter[str]] = defaultdict(Counter)  # a pod or address → Services, and how often

    def add(self, new: EndpointSlice) -> None:
        self._by_service[(new.namespace, new.service)][new.name] = new
        for endpoint in new.endpoints:
            self._naming[(new.namespace, endpoint.key)][new.service] += 1

    def remove(self, old: EndpointSlice) -> None:
        place = (old.namespace, old.service)
        del self._by_service[place][old.name]
        if not self._by_service[place]:
            del self._by_service[place]
        for endpoint in old.endpoints:
            self._forget((old.namespace, endpoint.key), old.service)

    def of(self, namespace: str, service: str) -> Iterable[EndpointSlice]:
        return self._by_service.get((namespace, service), {}).values()

    def naming(self, namespace: str, keys: Iterable[str]) -> set[str]:
        """The Services that have an endpoint with one of these keys: a pod name, or an address of the pod."""
        return {service for key in keys for service in self._naming.get((namespace, key), ())}

    def _forget(self, place: _Place, service: str) -> None:
        services = self._naming[place]
        services[service] -= 1
        if not services[service]:
            del services[service]
            if not services:
                del self._naming[place]
