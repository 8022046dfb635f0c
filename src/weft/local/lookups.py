"""What a name means to a pod that asks for it. The DNS servers of the mesh come in with a name and the asker's address;
the answer is found in the mesh as it is then.

Rule: what all services and pods say is kept until one of them changes, and found out anew only when somebody asks.
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
        self._namespaces: dict[str, str] = {}  # by a pod's address

    def add(self, addresses: Iterable[str], namespace: str) -> None:
        """A pod of these addresses may ask."""
        self._namespaces |= dict.fromkeys(addresses, namespace)

    def remove(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            self._namespaces.pop(address, None)

    def forget(self) -> None:
        """Services or pods have changed: what names mean is found out anew."""
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
