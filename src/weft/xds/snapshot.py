"""What every group of proxies should have: one table of named, versioned bytes per group and type.

The control plane comes in with updates; streams come in to ask what changed since the revision they know. A table keeps
its names in the order of their last change, so that question costs as much as the answer is long, and a stream needs
to remember one number. Revisions are push numbers: one call, one number, over all groups.

Rule: a group says nothing to anybody before its first update, for a proxy that reconnects to a control plane that has
just started would otherwise be told that all it has is gone. So the first update of a group must be its whole state.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

import msgspec

from weft.xds.push_times import PushTimes


class Resource(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def body(self) -> bytes:
        """The serialized message, without the `Any` around it."""


class Watcher(Protocol):
    """What a table needs of a stream."""

    def wake(self) -> None: ...

    def settled(self, type_url: str) -> int | None:
        """The revision up to which nothing of this type is owed or unanswered; None: not subscribed."""


class Rejected(msgspec.Struct, frozen=True):
    """A version that a proxy refused, and that nobody is sent again."""

    version: str
    detail: str
    resource: Resource | None = None  # where another proxy may yet take it, in a report that names it by its version


class Behind(Exception):
    """A stream can no longer be told what changed. It must start anew; its client then says what it has."""


# Removed names are remembered until every stream has passed them. They are counted only past the slack, so that the
# streams are not asked at every removal; past the limit the oldest are forgotten and streams that needed them end.
TOMBSTONE_SLACK = 64
TOMBSTONE_LIMIT = 10_000


class Table:
    """The resources of one type for one group."""

    def __init__(self) -> None:
        self.revision = 0
        self.floor = 0  # changes at or before this revision may be forgotten
        self.live: dict[str, Resource] = {}
        self.removed: OrderedDict[str, Resource | None] = OrderedDict()  # oldest first, with what was accepted last
        self.accepted: dict[str, Resource] = {}  # what some proxy has ACKed last
        self.rejected: dict[str, Rejected] = {}
        # What was live before, and since when, if nobody was known to have taken it: word of that may be on its way.
        self._replaced: dict[str, tuple[Resource, int]] = {}
        self._changes: dict[str, int] = {}  # name → revision, newest last
        self._collect_at = TOMBSTONE_SLACK
        self._accepted_until = 0

    def changed_since(self, revision: int) -> Iterator[str]:
        for name in reversed(self._changes):
            if self._changes[name] <= revision:
                return
            yield name

    def changed_at(self, name: str) -> int:
        """When a name that is live, or removed and not forgotten, changed last."""
        return self._changes.get(name, 0)

    def put(self, name: str, resource: Resource, revision: int) -> bool:
        current = self.live.get(name)
        rejected = self.rejected.get(name)
        if rejected is not None:
            if rejected.version == resource.version:
                return False
            del self.rejected[name]
        if current is not None and current.version == resource.version:
            return False
        if current is not None and self.accepted.get(name) is not current:
            self._replaced[name] = current, self._changes[name]
        self.live[name] = resource
        self.removed.pop(name, None)
        self._changed(name, revision)
        return True

    def remove(self, name: str, revision: int) -> bool:
        quarantined = self.rejected.pop(name, None)
        if self.live.pop(name, None) is None and quarantined is None:
            return False
        self.removed[name] = self.accepted.pop(name, None)
        self._replaced.pop(name, None)
        self._changed(name, revision)
        return True

    def reject(self, name: str, rejected: Rejected, revision: int) -> bool:
        """Go back to what a proxy has accepted. Where nothing is known to be good, the name is hidden from streams to
        come but not removed from those that are there: a proxy keeps its own last good one."""
        current = self.live.get(name)
        good = self.accepted.get(name)
        if current is None or current.version != rejected.version:
            return False
        if good is not None and good.version == rejected.version:
            return False  # another proxy took it: it is not the resource that is wrong for the whole group
        self.rejected[name] = Rejected(rejected.version, rejected.detail, current)
        if good is None:
            del self.live[name]
        else:
            self.live[name] = good
            self._changed(name, revision)
        return True

    def accept(self, resource: Resource) -> None:
        name = resource.name
        current = self.live.get(name)
        if current is not None and current.version == resource.version:
            self.accepted[name] = current
            self._replaced.pop(name, None)
        elif name in self._replaced and self._replaced[name][0].version == resource.version:
            self.accepted[name], _ = self._replaced.pop(name)

    def accept_until(self, revision: int) -> None:
        """Somebody has taken all that was live at this revision."""
        for name in reversed(self._changes):
            changed = self._changes[name]
            if changed <= self._accepted_until:
                break
            replaced, since = self._replaced.get(name, (None, 0))
            if changed <= revision and name in self.live:
                self.accept(self.live[name])
            elif replaced is not None and since <= revision:
                self.accept(replaced)
        self._accepted_until = max(self._accepted_until, revision)

    def known(self, name: str, version: str) -> Resource | None:
        """One that is or was live, by its version."""
        rejected, (replaced, _) = self.rejected.get(name), self._replaced.get(name, (None, 0))
        for resource in (self.live.get(name), rejected.resource if rejected else None, replaced):
            if resource is not None and resource.version == version:
                return resource
        return None

    def restore(self, resource: Resource, revision: int) -> bool:
        """One proxy refused it and another takes it: then it is not the resource that is wrong for the whole group, and
        whoever was sent back to the one before gets it again. A policy is not lifted for all by one that refuses it."""
        rejected = self.rejected.get(resource.name)
        if rejected is None or rejected.version != resource.version:
            return False
        del self.rejected[resource.name]
        self.live[resource.name] = self.accepted[resource.name] = resource
        self._changed(resource.name, revision)
        return True

    def collect(self, type_url: str, watchers: set[Watcher]) -> None:
        """Forget removed names that no stream needs any more."""
        if len(self.removed) <= self._collect_at:
            return
        passed = min((at for watcher in watchers if (at := watcher.settled(type_url)) is not None), default=None)
        while self.removed:
            name = next(iter(self.removed))
            revision = self._changes[name]
            if passed is not None and revision > passed:
                if len(self.removed) <= TOMBSTONE_LIMIT + len(self.live):
                    break
                self.floor = revision
            del self.removed[name], self._changes[name]
        self._collect_at = 2 * len(self.removed) + TOMBSTONE_SLACK

    def _changed(self, name: str, revision: int) -> None:
        self._changes.pop(name, None)  # to stand last again
        self._changes[name] = revision
        self.revision = revision


_EMPTY = Table()


class Group:
    """One group's tables, as its streams see them."""

    def __init__(self, identifier: Hashable) -> None:
        self.identifier = identifier
        self.ready = False
        self.dropped = False
        self.tables: dict[str, Table] = {}
        self.watchers: set[Watcher] = set()

    def table(self, type_url: str) -> Table:
        """Never made by asking: a client may ask for any type it can spell."""
        return self.tables.get(type_url, _EMPTY)


Update = Mapping[str, Mapping[str, Resource | None]]
Changes = dict[str, tuple[str, ...]]  # type → names


class Snapshots:
    def __init__(self) -> None:
        self.times = PushTimes()
        self._groups: dict[Hashable, Group] = {}

    @property
    def push(self) -> int:
        """The number of the last update that changed anything. It is now, for whoever counts on."""
        return self.times.last

    @push.setter
    def push(self, number: int) -> None:
        self.times.note(number)

    def update(self, group: Hashable, changes: Update) -> Changes:
        """Apply changes, None meaning removed, and wake the group's streams. Returns what differs from before."""
        state = self._group(group)
        changed: Changes = {}
        revision = self.push + 1
        for type_url, resources in changes.items():
            table = state.tables.setdefault(type_url, Table())
            names = tuple(
                name
                for name, resource in resources.items()
                if (table.remove(name, revision) if resource is None else table.put(name, resource, revision))
            )
            if names:
                changed[type_url] = names
        self._announce(state, changed)
        return changed

    def replace(self, group: Hashable, resources: Mapping[str, Mapping[str, Resource]]) -> Changes:
        """Make this the group's whole state. Types and names that are not in it go."""
        changes: dict[str, dict[str, Resource | None]] = {type_url: dict(of) for type_url, of in resources.items()}
        for type_url, table in self._group(group).tables.items():
            wanted = changes.setdefault(type_url, {})
            wanted.update((name, None) for name in {*table.live, *table.rejected} - wanted.keys())
        return self.update(group, changes)

    def drop(self, group: Hashable) -> None:
        """Forget a group. Its streams end; what their clients have stays with them."""
        state = self._groups.pop(group, None)
        if state is not None:
            state.dropped = True
            _wake(state)

    def groups(self) -> list[Hashable]:
        return [identifier for identifier, state in self._groups.items() if state.ready]

    def resources(self, group: Hashable, type_url: str) -> Mapping[str, Resource]:
        state = self._groups.get(group)
        return MappingProxyType(state.table(type_url).live if state else {})

    def accepted(self, group: Hashable, type_url: str, name: str) -> Resource | None:
        """What some proxy of the group took last."""
        state = self._groups.get(group)
        return state.table(type_url).accepted.get(name) if state else None

    def rejected(self, group: Hashable) -> dict[tuple[str, str], Rejected]:
        """What is quarantined, by type and name."""
        state = self._groups.get(group)
        tables = state.tables if state else {}
        return {(type_url, name): why for type_url, table in tables.items() for name, why in table.rejected.items()}

    def reject(self, group: Hashable, type_url: str, name: str, version: str, detail: str) -> bool:
        """Quarantine a version: nobody in the group is sent it again until an update brings another one. Returns
        whether it was the current one, and no other proxy had accepted it."""
        state = self._groups.get(group)
        if state is None or type_url not in state.tables:
            return False
        if not state.tables[type_url].reject(name, Rejected(version, detail), self.push + 1):
            return False
        self._announce(state, {type_url: (name,)})
        return True

    def accept(self, group: Hashable, type_url: str, resources: Iterable[Resource]) -> None:
        """A proxy of the group has taken these."""
        state = self._groups.get(group)
        if state is None or type_url not in state.tables:
            return
        table, restored = state.tables[type_url], []
        for resource in resources:
            table.accept(resource)
            if table.restore(resource, self.push + 1):
                restored.append(resource.name)
        if restored:
            self._announce(state, {type_url: tuple(restored)})

    def accept_versions(self, group: Hashable, type_url: str, versions: Mapping[str, str]) -> bool:
        """A proxy of the group is said to have taken these. Returns whether any of them is live."""
        state = self._groups.get(group)
        table = state.table(type_url) if state else _EMPTY
        named = [found for each in versions.items() if (found := table.known(*each)) is not None]
        self.accept(group, type_url, named)
        return any(table.live.get(each.name) is each for each in named)

    def accept_until(self, group: Hashable, type_url: str, revision: int) -> bool:
        """A proxy of the group is said to have taken all there was at this revision. Returns whether that is all there
        is now."""
        state = self._groups.get(group)
        if state is None or type_url not in state.tables:
            return False
        table = state.tables[type_url]
        table.accept_until(min(revision, self.push))
        return revision >= table.revision

    def forgive(self, group: Hashable, type_url: str, names: Iterable[str]) -> None:
        """Let the next update bring versions that were rejected: whoever decides about them wants them tried again."""
        state = self._groups.get(group)
        table = state.table(type_url) if state else _EMPTY
        for name in names:
            table.rejected.pop(name, None)

    def state(self, group: Hashable) -> Group | None:
        return self._groups.get(group)

    def attach(self, group: Hashable, watcher: Watcher) -> Group:
        state = self._groups.setdefault(group, Group(group))
        state.watchers.add(watcher)
        return state

    def detach(self, state: Group, watcher: Watcher) -> None:
        state.watchers.discard(watcher)
        if not state.ready and not state.watchers and self._groups.get(state.identifier) is state:
            del self._groups[state.identifier]

    def _group(self, group: Hashable) -> Group:
        return self._groups.setdefault(group, Group(group))

    def _announce(self, state: Group, changed: Changes) -> None:
        if changed:
            self.push += 1
        elif state.ready:
            return
        state.ready = True
        for type_url in changed:
            state.tables[type_url].collect(type_url, state.watchers)
        _wake(state)


def _wake(state: Group) -> None:
    for watcher in tuple(state.watchers):
        watcher.wake()
