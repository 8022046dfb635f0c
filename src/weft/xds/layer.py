"""What several groups have in common, recorded once: a layer of resources that lies under the tables of all of them.

A table upon a layer behaves as one that has everything itself, and keeps only what is the group's own: what it has
beyond the layer or instead of it, and what its proxies took or refused. Rule: a name that the group has itself hides
the layer's, whatever becomes of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from weakref import WeakKeyDictionary

from weft.xds.table import Resource, ResourceTable, parts_of


class LayerTable:
    """The resources of one type in a layer."""

    def __init__(self) -> None:
        self.revision = 0
        self.live: dict[str, Resource] = {}
        self.large: dict[str, Resource] = {}  # of these, those that are joined of parts
        self.changes: dict[str, int] = {}  # name → revision, newest last

    def changed_since(self, revision: int) -> Iterator[str]:
        for name in reversed(self.changes):
            if self.changes[name] <= revision:
                return
            yield name

    def set(self, name: str, resource: Resource | None, revision: int) -> None:
        self.changes.pop(name, None)  # to stand last again
        self.large.pop(name, None)
        if resource is not None and parts_of(resource):
            self.large[name] = resource
        if resource is None:
            self.live.pop(name, None)
        else:
            self.live[name] = resource
            self.changes[name] = revision
        self.revision = revision


_Differing = WeakKeyDictionary[LayerTable, tuple[int, int, frozenset[str]]]
_differing: WeakKeyDictionary[LayerTable, _Differing] = WeakKeyDictionary()


def differing(one: LayerTable, other: LayerTable) -> frozenset[str]:
    """Names that are not the same in both. For two layers, this is asked for each two groups upon them."""
    if one is other:
        return frozenset()
    known = _differing.setdefault(one, WeakKeyDictionary())
    here, there, names = known.get(other, (-1, -1, frozenset()))
    if (here, there) != (one.revision, other.revision):
        versions = [{(name, made.version) for name, made in shared.live.items()} for shared in (one, other)]
        names = frozenset(name for name, _ in versions[0] ^ versions[1])
        known[other] = one.revision, other.revision, names
    return names


class Layer:
    def __init__(self) -> None:
        self.types: dict[str, LayerTable] = {}

    def of(self, type_url: str) -> LayerTable:
        return self.types.setdefault(type_url, LayerTable())


class LayeredTable(ResourceTable):
    def __init__(self, shared: LayerTable) -> None:
        super().__init__()
        self.shared = shared
        self.claims: set[str] = set()  # names that the group has itself
        self.own: dict[str, Resource] = {}  # these, and what stands in for something of the layer that was refused
        self.hidden: set[str] = set()  # of the layer, refused, and nothing known that could stand in
        self.explicit: dict[str, Resource] = {}  # what was taken, where `until` does not say it
        self.until = 0  # all of the layer that changed last by this revision was taken
        self.live = _Live(self)
        self.accepted = _Accepted(self)
        self.revision = shared.revision

    def changed_since(self, revision: int) -> Iterator[str]:
        yield from super().changed_since(revision)
        for name in self.shared.changed_since(revision):
            if self.shows(name) and self._changes.get(name, 0) <= revision:
                yield name

    def changed_at(self, name: str) -> int:
        shared = self.shared.changes.get(name, 0) if self.shows(name) else 0
        return max(super().changed_at(name), shared)

    def shows(self, name: str) -> bool:
        """Whether it is the layer that decides what this name is."""
        return name not in self.own and name not in self.hidden

    def put(self, name: str, resource: Resource, revision: int) -> bool:
        self.claims.add(name)
        taken = self.accepted.get(name)
        if taken is not None:
            self.explicit[name] = taken
        current = self.shared.live.get(name) if self.shows(name) else None
        if current is not None and current.version == resource.version:
            self.own[name] = current
            self._changed(name, revision)  # the layer's number is not there any more to say who knows it
            return True
        return super().put(name, resource, revision)

    def remove(self, name: str, revision: int) -> bool:
        """The group has it no more itself. If the layer has one, that shows again."""
        self.claims.discard(name)
        below = self.shared.live.get(name)
        if below is None:
            return super().remove(name, revision)
        rejected = self.rejected.pop(name, None)
        if rejected is not None and rejected.version == below.version:
            self.rejected[name] = rejected  # what stood in for the group's own stands in for the layer's
            return False
        before, since, taken = self.live.get(name), self.changed_at(name), self.accepted.get(name)
        self.own.pop(name, None)
        self.hidden.discard(name)
        is_taken = taken is not None and taken.version == below.version
        if taken is not None:
            self.explicit[name] = below if is_taken else taken
        if is_taken and before is not None and before.version == below.version:
            return False
        if before is not None and before is not taken:
            self._replaced[name] = before, since
        self._changed(name, revision)  # even if it is the same: nobody is known to have taken it
        return True

    def restore(self, resource: Resource, revision: int) -> bool:
        if not super().restore(resource, revision):
            return False
        name = resource.name
        if name not in self.claims and name in self.shared.live:
            self.own.pop(name, None)
            self.hidden.discard(name)
        return True

    def accept(self, resource: Resource) -> None:
        name = resource.name
        if self.shared.live.get(name) is resource and self.shows(name):
            self.accepted[name] = resource
            self._replaced.pop(name, None)
        else:
            super().accept(resource)

    def accept_until(self, revision: int) -> None:
        super().accept_until(revision)
        for name in (*self.explicit, *(self._replaced.keys() - self.explicit.keys())):
            if name in self.own or self.shared.changes.get(name, 0) <= self.until:
                continue
            replaced, since = self._replaced.get(name, (None, 0))
            if self.shows(name) and self.changed_at(name) <= revision:
                self.explicit.pop(name, None)
                self._replaced.pop(name, None)
            elif replaced is not None and since <= revision:
                self.accept(replaced)
        self.until = max(self.until, revision)

    def compact(self) -> None:
        """Where all of the layer was taken, one number says so."""
        if not self.explicit or self.until >= self.shared.revision:
            return
        if self.hidden:
            return
        for name in self.changed_since(self.until):
            if name not in self.own and self.explicit.get(name) is not self.shared.live.get(name):
                return
        self.until = self.shared.revision
        self.explicit = {name: taken for name, taken in self.explicit.items() if not self.is_implied(name)}

    # The layer changes

    def below(self, name: str, resource: Resource | None, revision: int) -> None:
        """What the layer has under this name is about to become another."""
        self.revision = revision
        if name in self.claims:
            if resource is None:
                self.hidden.discard(name)
            elif name not in self.own:  # refused, with nothing to stand in
                self.hidden.add(name)
            return
        current, since, taken = self.live.get(name), self.changed_at(name), self.accepted.get(name)
        self.rejected.pop(name, None)
        self.own.pop(name, None)
        self.hidden.discard(name)
        if resource is None:
            self.explicit.pop(name, None)
            self._replaced.pop(name, None)
            self.removed[name] = taken
            self._changed(name, revision)
            return
        if taken is not None:
            self.explicit[name] = resource if taken.version == resource.version else taken
        if current is not None and current is not taken:
            self._replaced[name] = current, since
        self.removed.pop(name, None)
        self._changes.pop(name, None)  # the layer's own is newer

    def rest_upon(self, shared: LayerTable, revision: int) -> bool:
        """Another layer comes in the place of this one. Returns whether anything is different."""
        before = dict(self.live)
        for name in self.shared.live:
            if (taken := self.accepted.get(name)) is not None:
                self.explicit[name] = taken
        stands_in = {name: self.rejected[name] for name in self.rejected if name not in self.claims}
        since = {name: self.changed_at(name) for name in before}
        latest = self.revision
        self.shared, self.until = shared, 0
        for name, rejected in stands_in.items():
            there = shared.live.get(name)
            if there is None or there.version != rejected.version:
                del self.rejected[name]
                self.own.pop(name, None)
                self.hidden.discard(name)
        for name in self.claims - self.own.keys():  # refused, with nothing to stand in
            self.hidden.add(name)
        self.hidden &= shared.live.keys()
        after = dict(self.live)
        for name in (before.keys() | stands_in.keys()) - after.keys() - self.rejected.keys():
            self.removed[name] = self.explicit.pop(name, None)
            self._replaced.pop(name, None)
            self._changed(name, revision)
        changed = self.revision == revision
        for name, resource in after.items():
            was, taken = before.get(name), self.explicit.get(name)
            if taken is not None and taken.version == resource.version:
                self.explicit[name] = resource
            if was is not None and was.version == resource.version:
                if self.changed_at(name) < since[name]:  # who has not heard of it yet must still do
                    self._changed(name, revision)
                    changed = True
                continue
            if was is not None and was is not taken:
                self._replaced[name] = was, since[name]
            self.removed.pop(name, None)
            self._changed(name, revision)
            changed = True
        self.revision = max(self.revision, latest, shared.revision)
        self.compact()
        return changed

    def is_implied(self, name: str) -> bool:
        """Whether `until` says that what shows was taken."""
        changed = self.shared.changes.get(name)
        if changed is None or changed > self.until or not self.shows(name):
            return False
        return self._changes.get(name, 0) <= self.until


def unlike(like: ResourceTable, table: ResourceTable) -> tuple[list[str], list[Resource]]:
    """Of one that is as the other but for these: the names, live here or not; and what is the same and large."""
    names: list[str] = []
    common: list[Resource] = []
    if isinstance(like, LayeredTable) and isinstance(table, LayeredTable):
        own = {*like.own, *like.hidden, *table.own, *table.hidden}
        candidates: Iterable[str] = {*own, *like.rejected, *differing(like.shared, table.shared)}
        common = [each for each in table.shared.large.values() if each.name not in candidates]
    else:
        candidates = {*like.live, *like.rejected, *table.live}
    for name in candidates:
        there, here = like.live.get(name), table.live.get(name)
        # Of what is in quarantine there, the agent may have any version.
        if name in like.rejected or there is None or here is None or there.version != here.version:
            names.append(name)
        else:
            common.append(here)
    return names, common


class _TableView(MutableMapping[str, Resource]):
    """A table as one mapping; `get` of a subclass decides what is in it."""

    def __init__(self, table: LayeredTable) -> None:
        self._table = table

    def __getitem__(self, name: str) -> Resource:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found


class _Live(_TableView):
    """What there is for the group's proxies."""

    def get(self, name: str, default: Resource | None = None) -> Resource | None:  # type: ignore[override]
        table = self._table
        found = table.own.get(name)
        if found is None and name not in table.hidden:
            found = table.shared.live.get(name)
        return default if found is None else found

    def __contains__(self, name: object) -> bool:
        table = self._table
        return name in table.own or (name in table.shared.live and name not in table.hidden)

    def __setitem__(self, name: str, resource: Resource) -> None:
        self._table.own[name] = resource
        self._table.hidden.discard(name)

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._table.own.pop(name, None)
        if name in self._table.shared.live:
            self._table.hidden.add(name)

    def __iter__(self) -> Iterator[str]:
        table = self._table
        yield from table.own
        for name in table.shared.live:
            if table.shows(name):
                yield name

    def __len__(self) -> int:
        table = self._table
        beyond = sum(name not in table.shared.live for name in table.own)
        return len(table.shared.live) + beyond - len(table.hidden)


class _Accepted(_TableView):
    """What some proxy of the group took last."""

    def get(self, name: str, default: Resource | None = None) -> Resource | None:  # type: ignore[override]
        table = self._table
        found = table.explicit.get(name)
        if found is None and table.is_implied(name):
            found = table.shared.live[name]
        return default if found is None else found

    def __setitem__(self, name: str, resource: Resource) -> None:
        table = self._table
        if table.is_implied(name) and table.shared.live[name] is resource:
            table.explicit.pop(name, None)
        else:
            table.explicit[name] = resource

    def __delitem__(self, name: str) -> None:
        del self._table.explicit[name]

    def __iter__(self) -> Iterator[str]:
        table = self._table
        yield from table.explicit
        for name in table.shared.live:
            if name not in table.explicit and table.is_implied(name):
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)
