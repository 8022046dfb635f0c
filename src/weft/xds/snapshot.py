"""The target state of every group of proxies: one table of named, versioned bytes per group and type.

The control plane applies updates. A stream reads what changed since a revision, so that it stores only one number.
Revisions are push numbers: one per update, over all groups. Resources that groups have in common may be in a layer
below the tables of these groups (`layer.py`), and are then updated once.

Rule: a group's streams get nothing before the group's first update; otherwise a proxy that reconnects to a control
plane that has just started would remove everything it has. So the first update of a group must be its whole state.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from types import MappingProxyType

from weft.xds.layer import Layer, LayeredTable
from weft.xds.push_times import PushTimes
from weft.xds.table import Rejected, Resource, ResourceTable, Watcher

_EMPTY = ResourceTable()


class GroupTables:
    """The resource tables of one group, by type, and the streams that watch them."""

    def __init__(self, identifier: Hashable) -> None:
        self.identifier = identifier
        self.ready = False
        self.dropped = False
        self.tables: dict[str, ResourceTable] = {}
        self.layer: Layer | None = None  # the layer below the tables; with a layer, each table is a `LayeredTable`
        self.watchers: set[Watcher] = set()

    def table(self, type_url: str) -> ResourceTable:
        """Return the table of a type, or an empty one that is not stored: a client may request any type."""
        return self.tables.get(type_url, _EMPTY)

    def writable(self, type_url: str) -> ResourceTable:
        table = self.tables.get(type_url)
        if table is None:
            table = self.tables[type_url] = LayeredTable(self.layer.of(type_url)) if self.layer else ResourceTable()
        return table


Update = Mapping[str, Mapping[str, Resource | None]]
Changes = dict[str, tuple[str, ...]]  # type → names


class Snapshots:
    def __init__(self) -> None:
        self.times = PushTimes()
        self._groups: dict[Hashable, GroupTables] = {}
        self._upon: dict[Layer, dict[GroupTables, None]] = {}

    @property
    def push(self) -> int:
        """The number of the last update that changed anything. Setting it records the current time as its push time."""
        return self.times.last

    @push.setter
    def push(self, number: int) -> None:
        self.times.note(number)

    def update(self, group: Hashable, changes: Update, layer: Layer | None = None) -> Changes:
        """Apply changes to a group and wake its streams. In `changes`, a resource of None is removed. Returns the
        names whose resources changed. `layer`: the group's new layer; None to keep its layer."""
        state = self._group(group)
        changed: Changes = {}
        revision = self.push + 1
        if layer is not None and layer is not state.layer:
            changed.update(dict.fromkeys(self._rest(state, layer, revision), ()))
        for type_url, resources in changes.items():
            table = state.writable(type_url)
            names = tuple(
                name
                for name, resource in resources.items()
                if (table.remove(name, revision) if resource is None else table.put(name, resource, revision))
            )
            if names:
                changed[type_url] = names
        self._announce(state, changed)
        return changed

    def update_layer(self, layer: Layer, changes: Update) -> None:
        """Apply changes to a layer and wake the streams of all groups on it."""
        revision = self.push + 1
        upon = self._upon.get(layer, {})
        changed: set[str] = set()
        for type_url, resources in changes.items():
            shared = layer.of(type_url)
            tables = [table for state in upon if isinstance(table := state.writable(type_url), LayeredTable)]
            for name, resource in resources.items():
                before = shared.live.get(name)
                if before is resource or (before and resource and before.version == resource.version):
                    continue
                for table in tables:
                    table.below(name, resource, revision)
                shared.set(name, resource, revision)
                changed.add(type_url)
        if not changed:
            return
        self.push = revision
        for state in upon:
            for type_url in changed:
                state.tables[type_url].collect(type_url, state.watchers)
            _wake(state)

    def replace(self, group: Hashable, resources: Mapping[str, Mapping[str, Resource]]) -> Changes:
        """Replace the group's whole state by `resources`. Types and names that are not in `resources` are removed."""
        changes: dict[str, dict[str, Resource | None]] = {type_url: dict(of) for type_url, of in resources.items()}
        for type_url, table in self._group(group).tables.items():
            wanted = changes.setdefault(type_url, {})
            wanted.update((name, None) for name in {*table.live, *table.rejected} - wanted.keys())
        return self.update(group, changes)

    def drop(self, group: Hashable) -> None:
        """Remove a group. Its streams end; their clients keep the resources that they have."""
        state = self._groups.pop(group, None)
        if state is not None:
            state.dropped = True
            self._lift(state)
            _wake(state)

    def groups(self) -> list[Hashable]:
        return [identifier for identifier, state in self._groups.items() if state.ready]

    def resources(self, group: Hashable, type_url: str) -> Mapping[str, Resource]:
        state = self._groups.get(group)
        return MappingProxyType(state.table(type_url).live if state else {})

    def accepted(self, group: Hashable, type_url: str, name: str) -> Resource | None:
        """Return the version of this resource that some proxy of the group accepted last; None if no proxy has
        accepted one."""
        state = self._groups.get(group)
        return state.table(type_url).accepted.get(name) if state else None

    def rejected(self, group: Hashable) -> dict[tuple[str, str], Rejected]:
        """Return the group's quarantined versions, by type and name."""
        state = self._groups.get(group)
        tables = state.tables if state else {}
        return {(type_url, name): why for type_url, table in tables.items() for name, why in table.rejected.items()}

    def reject(self, group: Hashable, type_url: str, name: str, version: str, detail: str) -> bool:
        """Quarantine a version: it is not sent to any proxy of the group again, until an update brings another version.
        Returns whether it was the current version and no other proxy had accepted it. `detail`: the error message of
        the proxy."""
        state = self._groups.get(group)
        if state is None or type_url not in state.tables:
            return False
        if not state.tables[type_url].reject(name, Rejected(version, detail), self.push + 1):
            return False
        self._announce(state, {type_url: (name,)})
        return True

    def accept(self, group: Hashable, type_url: str, resources: Iterable[Resource]) -> None:
        """Record that a proxy of the group has accepted these resources."""
        state = self._groups.get(group)
        if state is None or type_url not in state.tables:
            return
        table, restored = state.tables[type_url], []
        for resource in resources:
            table.accept(resource)
            if table.rejected and table.restore(resource, self.push + 1):
                restored.append(resource.name)
        table.compact()
        if restored:
            self._announce(state, {type_url: tuple(restored)})

    def accept_versions(self, group: Hashable, type_url: str, versions: Mapping[str, str]) -> bool:
        """Record a report that a proxy of the group has accepted these versions (by resource name). Returns
        whether any of them is the version that the group is sent now."""
        state = self._groups.get(group)
        table = state.table(type_url) if state else _EMPTY
        named = [resource for each in versions.items() if (resource := table.known(*each)) is not None]
        self.accept(group, type_url, named)
        return any(table.live.get(each.name) is each for each in named)

    def accept_until(self, group: Hashable, type_url: str, revision: int) -> bool:
        """Record a report that a proxy of the group has accepted every resource of the type as of `revision`. Returns
        whether nothing of the type has changed since."""
        state = self._groups.get(group)
        if state is None or type_url not in state.tables:
            return False
        table = state.tables[type_url]
        table.accept_until(min(revision, self.push))
        return revision >= table.revision

    def forgive(self, group: Hashable, type_url: str, names: Iterable[str]) -> None:
        """Lift the quarantine of these names, so that the next update can set versions that were rejected: the control
        plane wants proxies to try them again."""
        state = self._groups.get(group)
        table = state.table(type_url) if state else _EMPTY
        for name in names:
            table.rejected.pop(name, None)

    def state(self, group: Hashable) -> GroupTables | None:
        return self._groups.get(group)

    def attach(self, group: Hashable, watcher: Watcher) -> GroupTables:
        state = self._groups.setdefault(group, GroupTables(group))
        state.watchers.add(watcher)
        return state

    def detach(self, state: GroupTables, watcher: Watcher) -> None:
        state.watchers.discard(watcher)
        if not state.ready and not state.watchers and self._groups.get(state.identifier) is state:
            del self._groups[state.identifier]

    def _group(self, group: Hashable) -> GroupTables:
        return self._groups.setdefault(group, GroupTables(group))

    def _rest(self, state: GroupTables, layer: Layer, revision: int) -> list[str]:
        """Set or replace the layer of the group with the tables `state`. Returns the types whose resources changed
        because of that."""
        if state.layer is None and state.tables:
            raise ValueError("a group must have a layer from its first update on, or never")
        is_first = state.layer is None
        self._lift(state)
        state.layer = layer
        self._upon.setdefault(layer, {})[state] = None
        for type_url in layer.types:
            state.writable(type_url)
        if is_first:
            return [type_url for type_url, shared in layer.types.items() if shared.live]
        changed = []
        for type_url, table in tuple(state.tables.items()):
            if isinstance(table, LayeredTable) and table.rest_upon(layer.of(type_url), revision):
                changed.append(type_url)
        return changed

    def _lift(self, state: GroupTables) -> None:
        upon = self._upon.get(state.layer) if state.layer else None
        if upon is not None and state.layer is not None:
            upon.pop(state, None)
            if not upon:
                del self._upon[state.layer]

    def _announce(self, state: GroupTables, changed: Changes) -> None:
        if changed:
            self.push += 1
        elif state.ready:
            return
        state.ready = True
        for type_url in changed:
            state.tables[type_url].collect(type_url, state.watchers)
        _wake(state)


def _wake(state: GroupTables) -> None:
    for watcher in tuple(state.watchers):
        watcher.wake()
