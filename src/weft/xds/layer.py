"""Resources that several groups have in common, stored once, in a layer below the tables of these groups.

A table on a layer behaves as if it contained every resource of the layer, but stores only what is specific to its
group: the group's own resources, and what the group's proxies accepted or rejected. Rule: a resource of the group
overrides the layer's resource of the same name, however the layer changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from weakref import WeakKeyDictionary

from weft.xds.table import Resource, ResourceTable, parts_of


class LayerTable:
    """The resources of one type in a layer, which several groups share."""

    def __init__(self) -> None:
        self.revision = 0
        self.live: dict[str, Resource] = {}
        self.large: dict[str, Resource] = {}  # the resources of `live` whose body has several parts
        self.changes: dict[str, int] = {}  # name → revision of its last change, newest last

    def changed_since(self, revision: int) -> Iterator[str]:
        for name in reversed(self.changes):
            if self.changes[name] <= revision:
                return
            yield name

    def set(self, name: str, resource: Resource | None, revision: int) -> None:
        self.changes.pop(name, None)  # to move the name to the end
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
    """Return the names whose version differs between the layers of `one` and `other`. Cached, because every pair of
    groups on the two layers needs them."""
    if one is other:
        return frozenset()
    cached = _differing.setdefault(one, WeakKeyDictionary())
    revision, other_revision, names = cached.get(other, (-1, -1, frozenset()))
    if (revision, other_revision) != (one.revision, other.revision):
        versions = [{(name, resource.version) for name, resource in shared.live.items()} for shared in (one, other)]
        names = frozenset(name for name, _ in versions[0] ^ versions[1])
        cached[other] = one.revision, other.revision, names
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
        self.claims: set[str] = set()  # names of the group's own resources
        self.own: dict[str, Resource] = {}  # the group's resources, and last good versions of rejected ones
        self.hidden: set[str] = set()  # names that the layer has, that were rejected, and that have no good version
        self.explicit: dict[str, Resource] = {}  # accepted resources that `until` does not cover
        self.until = 0  # resources of the layer whose last change is at or before this revision were accepted
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
        """Whether the layer's resource of this name, if there is one, is a resource of the group: true if the group has
        no resource of its own with this name and the name is not hidden."""
        return name not in self.own and name not in self.hidden

    def put(self, name: str, resource: Resource, revision: int) -> bool:
        self.claims.add(name)
        accepted = self.accepted.get(name)
        if accepted is not None:
            self.explicit[name] = accepted
        current = self.shared.live.get(name) if self.shows(name) else None
        if current is not None and current.version == resource.version:
            self.own[name] = current
            self._changed(name, revision)  # from now on the group's own revision applies to this name
            return True
        return super().put(name, resource, revision)

    def remove(self, name: str, revision: int) -> bool:
        """Remove the group's own resource of this name. If the layer has a resource of this name, it is the group's
        resource from now on. Returns whether the group's resource of this name changed."""
        self.claims.discard(name)
        below = self.shared.live.get(name)
        if below is None:
            return super().remove(name, revision)
        rejected = self.rejected.pop(name, None)
        if rejected is not None and rejected.version == below.version:
            self.rejected[name] = rejected  # the layer has the same bad version, so its last good version stays
            return False
        before, since, accepted = self.live.get(name), self.changed_at(name), self.accepted.get(name)
        self.own.pop(name, None)
        self.hidden.discard(name)
        is_accepted = accepted is not None and accepted.version == below.version
        if accepted is not None:
            self.explicit[name] = below if is_accepted else accepted
        if is_accepted and before is not None and before.version == below.version:
            return False
        if before is not None and before is not accepted:
            self._replaced[name] = before, since
        self._changed(name, revision)  # even for the same version: no proxy is known to have accepted it
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
        """If some proxy of the group has accepted every resource of the layer, store that as one revision (`until`:
        everything up to it was accepted) instead of one entry per name."""
        if not self.explicit or self.until >= self.shared.revision:
            return
        if self.hidden:
            return
        for name in self.changed_since(self.until):
            if name not in self.own and self.explicit.get(name) is not self.shared.live.get(name):
                return
        self.until = self.shared.revision
        self.explicit = {name: taken for name, taken in self.explicit.items() if not self.is_implied(name)}

    # Changes of the layer

    def below(self, name: str, resource: Resource | None, revision: int) -> None:
        """Adjust this table to a change that is about to be made in its layer: the layer's resource `name` becomes
        `resource`, or is removed (None). `revision`: the revision of that change."""
        self.revision = revision
        if name in self.claims:
            if resource is None:
                self.hidden.discard(name)
            elif name not in self.own:  # the group's version was rejected, and no earlier version is good
                self.hidden.add(name)
            return
        current, since, accepted = self.live.get(name), self.changed_at(name), self.accepted.get(name)
        self.rejected.pop(name, None)
        self.own.pop(name, None)
        self.hidden.discard(name)
        if resource is None:
            self.explicit.pop(name, None)
            self._replaced.pop(name, None)
            self.removed[name] = accepted
            self._changed(name, revision)
            return
        if accepted is not None:
            self.explicit[name] = resource if accepted.version == resource.version else accepted
        if current is not None and current is not accepted:
            self._replaced[name] = current, since
        self.removed.pop(name, None)
        self._changes.pop(name, None)  # the layer's revision is newer than the group's

    def rest_upon(self, shared: LayerTable, revision: int) -> bool:
        """Replace the layer below this table by `shared`, as part of the update with this revision. Returns whether any
        resource of the group changed."""
        before = dict(self.live)
        for name in self.shared.live:
            if (accepted := self.accepted.get(name)) is not None:
                self.explicit[name] = accepted
        stands_in = {name: self.rejected[name] for name in self.rejected if name not in self.claims}
        since = {name: self.changed_at(name) for name in before}
        latest = self.revision
        self.shared, self.until = shared, 0
        for name, rejected in stands_in.items():
            resource_below = shared.live.get(name)
            if resource_below is None or resource_below.version != rejected.version:
                del self.rejected[name]
                self.own.pop(name, None)
                self.hidden.discard(name)
        for name in self.claims - self.own.keys():  # the group's version was rejected, and no earlier version is good
            self.hidden.add(name)
        self.hidden &= shared.live.keys()
        after = dict(self.live)
        for name in (before.keys() | stands_in.keys()) - after.keys() - self.rejected.keys():
            self.removed[name] = self.explicit.pop(name, None)
            self._replaced.pop(name, None)
            self._changed(name, revision)
        changed = self.revision == revision
        for name, resource in after.items():
            was, accepted = before.get(name), self.explicit.get(name)
            if accepted is not None and accepted.version == resource.version:
                self.explicit[name] = resource
            if was is not None and was.version == resource.version:
                if self.changed_at(name) < since[name]:  # streams that lack this version must still send it
                    self._changed(name, revision)
                    changed = True
                continue
            if was is not None and was is not accepted:
                self._replaced[name] = was, since[name]
            self.removed.pop(name, None)
            self._changed(name, revision)
            changed = True
        self.revision = max(self.revision, latest, shared.revision)
        self.compact()
        return changed

    def is_implied(self, name: str) -> bool:
        """Whether `until` covers the layer's resource of this name: the resource was accepted as part of everything up
        to revision `until`."""
        changed = self.shared.changes.get(name)
        if changed is None or changed > self.until or not self.shows(name):
            return False
        return self._changes.get(name, 0) <= self.until


def unlike(like: ResourceTable, table: ResourceTable) -> tuple[list[str], list[Resource]]:
    """Compare `table` with the nearly equal table `like` and return (names, common). `names`: the names whose resources
    differ. `common`: identical resources, among them all large ones (joined from several parts, see `parts_of`), which
    later patches can use as a base."""
    names: list[str] = []
    common: list[Resource] = []
    if isinstance(like, LayeredTable) and isinstance(table, LayeredTable):
        own = {*like.own, *like.hidden, *table.own, *table.hidden}
        candidates: Iterable[str] = {*own, *like.rejected, *differing(like.shared, table.shared)}
        common = [each for each in table.shared.large.values() if each.name not in candidates]
    else:
        candidates = {*like.live, *like.rejected, *table.live}
    for name in candidates:
        like_resource, resource = like.live.get(name), table.live.get(name)
        # A quarantined resource of `like` always differs: the agent may have any version of it.
        if (
            name in like.rejected
            or like_resource is None
            or resource is None
            or like_resource.version != resource.version
        ):
            names.append(name)
        else:
            common.append(resource)
    return names, common


class _TableView(MutableMapping[str, Resource]):
    """A layered table as one mapping from names to resources; `get` of the subclass selects the resource of a name."""

    def __init__(self, table: LayeredTable) -> None:
        self._table = table

    def __getitem__(self, name: str) -> Resource:
        resource = self.get(name)
        if resource is None:
            raise KeyError(name)
        return resource


class _Live(_TableView):
    """The resources that the group's proxies should have now."""

    def get(self, name: str, default: Resource | None = None) -> Resource | None:  # type: ignore[override]
        table = self._table
        resource = table.own.get(name)
        if resource is None and name not in table.hidden:
            resource = table.shared.live.get(name)
        return default if resource is None else resource

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
    """For each name, the resource that some proxy of the group accepted last."""

    def get(self, name: str, default: Resource | None = None) -> Resource | None:  # type: ignore[override]
        table = self._table
        resource = table.explicit.get(name)
        if resource is None and table.is_implied(name):
            resource = table.shared.live[name]
        return default if resource is None else resource

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
