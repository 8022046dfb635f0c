"""Resolves names for the mesh's DNS servers: from a name and the address of the asking pod to the answer, according to
the current services and pods.

Rule: the index over all services and pods is cached until one of them changes, and rebuilt only at the next query.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.local.addresses import POD_RANGES, SERVICE_RANGES
from weft.mesh.mesh import Mesh
from weft.model.instance import Instance
from weft.translate.lookup import Answer, NameLookup


class Lookups:
    def __init__(self, mesh: Mesh, domain: str) -> None:
        self._mesh, self._domain = mesh, domain
        self._names: NameLookup | None = None
        self._namespaces: dict[str, str] = {}  # by the address of a pod

    def add(self, addresses: Iterable[str], namespace: str) -> None:
        """Register a pod's addresses and its namespace. A short name in a query from one of these addresses is
        resolved in that namespace."""
        self._namespaces |= dict.fromkeys(addresses, namespace)

    def remove(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            self._namespaces.pop(address, None)

    def forget(self) -> None:
        """Discard the cached index after a change of services or pods."""
        self._names = None

    def for_pod(self, name: str, asker: str) -> Answer:
        return self._known().look_up(name, self._namespaces.get(asker, "default"))

    def for_proxy(self, name: str, asker: str) -> Answer:
        return self._known().look_up_for_proxy(name, self._namespaces.get(asker, "default"))

    def _known(self) -> NameLookup:
        if self._names is None:
            instances = [value for _, values in self._mesh.values() for value in values if isinstance(value, Instance)]
            self._names = NameLookup(self._mesh.services(), instances, self._domain, (*POD_RANGES, *SERVICE_RANGES))
        return self._names
