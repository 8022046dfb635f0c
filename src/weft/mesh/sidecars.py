"""Index of Sidecars: a group gets the Sidecar that selects it, else its namespace's, else the root namespace's."""

from __future__ import annotations

from weft.mesh.claims import Claims
from weft.model.group import Group
from weft.model.names import selects
from weft.model.settings import Settings
from weft.model.sidecar import Sidecar


class Sidecars:
    def __init__(self) -> None:
        self._by_namespace: Claims[Sidecar] = Claims()

    def add(self, sidecar: Sidecar) -> None:
        self._by_namespace.add(sidecar.namespace, sidecar)

    def remove(self, sidecar: Sidecar) -> None:
        self._by_namespace.discard(sidecar.namespace, sidecar)

    @property
    def hiding(self) -> bool:
        """Whether any Sidecar may hide services (has `egress`)."""
        return any(each.egress for each in self._by_namespace)

    def of(self, group: Group, settings: Settings) -> Sidecar | None:
        own = self._by_namespace.to(group.namespace)
        selecting = (each for each in own if each.selector and selects(each.selector, group.labels))
        everyones = (each for each in (*own, *self._by_namespace.to(settings.root_namespace)) if not each.selector)
        return next(selecting, None) or next(everyones, None)
