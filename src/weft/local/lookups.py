"""Resolves names for the mesh's DNS servers: from a name and the address of the asking pod to the answer, according to
the current services and pods.

Rule: the index over all services and pods is cached until one of them changes, and rebuilt only at the next query. It
is built on the engine's event loop, because it reads the mesh. It never changes afterwards, so the DNS servers read it
on their own thread.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.local.addresses import POD_RANGES, SERVICE_RANGES
from weft.mesh.mesh import Mesh
from weft.model.instance import Instance
from weft.translate.lookup import NameLookup


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

    @property
    def fresh(self) -> NameLookup | None:
        """The cached index; None if there is none, or if a service or pod has changed since."""
        return self._names

    def index(self) -> NameLookup:
        """Return the index, built anew if `fresh` is None."""
        if self._names is None:
            instances = [value for _, values in self._mesh.values() for value in values if isinstance(value, Instance)]
            self._names = NameLookup(self._mesh.services(), instances, self._domain, (*POD_RANGES, *SERVICE_RANGES))
        return self._names

    def namespace_of(self, asker: str) -> str:
        """Return the namespace of the pod with this address; `default` if no pod has it."""
        return self._namespaces.get(asker, "default")
