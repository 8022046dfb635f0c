"""What stays as it is when a mesh becomes another: two stages come in, and out goes whether what happens to a request
can have changed at all. Most requests never meet what a change is about.

Rule: a request ends as it did if nobody has come, gone or moved, and every proxy that was asked is sent the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.control.changed_objects import meaning
from weft.control.stage import Stage
from weft.model.group import Group
from weft.model.mesh import Mesh

# Kinds that reach a request only by what proxies are sent. Of all others a stage knows something of its own: names,
# addresses, who listens.
_BY_PROXIES = frozenset(
    {"VirtualService", "DestinationRule", "AuthorizationPolicy", "PeerAuthentication", "RequestAuthentication"}
)


class Unmoved:
    def __init__(self, before: Stage, after: Stage) -> None:
        self._before, self._after = before, after
        self._world = before.mesh.settings == after.mesh.settings and _stand_alike(before.mesh, after.mesh)
        self._groups: dict[Group, bool] = {}

    def everything(self) -> bool:
        return self.all_of({*self._before.groups(), *self._after.groups()})

    def all_of(self, met: Iterable[Group]) -> bool:
        """Whether a request ends as it did whose way leads by the proxies of these groups, and no others."""
        return self._world and all(map(self.is_sent_the_same, met))

    def is_sent_the_same(self, group: Group) -> bool:
        if group not in self._groups:
            self._groups[group] = self._before.versions(group) == self._after.versions(group)
        return self._groups[group]


def _stand_alike(before: Mesh, after: Mesh) -> bool:
    old, new = dict(before.values()), dict(after.values())
    return all(
        old.get(key, ()) == new.get(key, ()) or meaning(old.get(key, ())) == meaning(new.get(key, ()))
        for key in {*old, *new}
        if key.kind not in _BY_PROXIES
    )
