"""The resources of one type for one group: named, versioned bytes, and which versions proxies accepted and rejected.

A table keeps its names in the order of their last change, so that finding the changes since a revision costs time
proportional to their number. `snapshot.py` owns the tables and numbers the revisions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, MutableMapping
from typing import Protocol

import msgspec


class Resource(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def body(self) -> bytes:
        """The serialized message, without the `Any` around it."""


def parts_of(resource: Resource) -> tuple[bytes, ...]:
    """Return the parts that a large body is joined from, if they are known; () for any other resource."""
    parts: tuple[bytes, ...] = getattr(resource, "parts", ())
    return parts if len(parts) > 1 else ()


class Watcher(Protocol):
    """A stream that watches the tables of a group."""

    def wake(self) -> None: ...

    def settled(self, type_url: str) -> int | None:
        """Return the revision up to which all changes of this type were sent on this stream and acknowledged; None
        if the stream is not subscribed to the type."""


class Rejected(msgspec.Struct, frozen=True):
    """A quarantined version: a proxy rejected it, and it is not sent to any proxy again. `detail`: the proxy's error
    message. `resource`: kept because another proxy may still report that it has accepted this version."""

    version: str
    detail: str
    resource: Resource | None = None  # kept because another proxy may still report that it accepted it


class Behind(Exception):
    """The changes that a stream needs are no longer recorded. The stream must be restarted; its client then sends the
    versions it has."""


# Removed names are kept until every stream has sent them. They are collected only when there are more than
# TOMBSTONE_SLACK, so that not every removal checks all streams. Above the limit the oldest are dropped, and streams
# that needed them are restarted.
TOMBSTONE_SLACK = 64
TOMBSTONE_LIMIT = 10_000


class ResourceTable:
    """The resources of one type for one group, and which versions its proxies accepted and rejected."""

    def __init__(self) -> None:
        self.revision = 0
        self.floor = 0  # changes at or before this revision may no longer be recorded
        self.live: MutableMapping[str, Resource] = {}  # name → the current version, which the proxies should have
        self.removed: OrderedDict[str, Resource | None] = OrderedDict()  # name → last accepted version; oldest first
        self.accepted: MutableMapping[str, Resource] = {}  # name → the version that some proxy has ACKed last
        self.rejected: dict[str, Rejected] = {}
        # Name → the previous version and its revision, if no proxy is known to have accepted that version: an ACK may
        # still arrive.
        self._replaced: dict[str, tuple[Resource, int]] = {}
        self._changes: dict[str, int] = {}  # name → revision of its last change, newest last
        self._collect_at = TOMBSTONE_SLACK
        self._accepted_until = 0

    def changed_since(self, revision: int) -> Iterator[str]:
        for name in reversed(self._changes):
            if self._changes[name] <= revision:
                return
            yield name

    def changed_at(self, name: str) -> int:
        """Return the revision of the last change of a name; 0 if the name is unknown, or was removed and its record was
        dropped (`collect`)."""
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
            self._replaced[name] = current, self.changed_at(name)
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
        """Quarantine the current version of a name and go back to the last version that some proxy has accepted. If
        there is no such version, the name is hidden from new streams, but not removed from existing ones, so that each
        proxy keeps its own last good version. Returns False, and changes nothing, if the rejected version is not the
        current one or another proxy has accepted it."""
        current = self.live.get(name)
        good = self.accepted.get(name)
        if current is None or current.version != rejected.version:
            return False
        if good is not None and good.version == rejected.version:
            return False  # another proxy accepted this version, so it is not wrong for the whole group
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
        """Record that some proxy has accepted every resource of the table, in its version at this revision."""
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

    def compact(self) -> None:
        """Called after acceptances were recorded; a subclass may store them in less memory."""

    def known(self, name: str, version: str) -> Resource | None:
        """Return the resource with this name, if this version is the current, the quarantined or the previous one; else
        None."""
        rejected, (replaced, _) = self.rejected.get(name), self._replaced.get(name, (None, 0))
        for resource in (self.live.get(name), rejected.resource if rejected else None, replaced):
            if resource is not None and resource.version == version:
                return resource
        return None

    def restore(self, resource: Resource, revision: int) -> bool:
        """Lift the quarantine of `resource` because another proxy has accepted this version: if the rejection by one
        proxy withheld a version from the whole group, that proxy could disable a policy for all. Proxies that went back
        to an earlier version get this one again. Returns whether this version was quarantined."""
        rejected = self.rejected.get(resource.name)
        if rejected is None or rejected.version != resource.version:
            return False
        del self.rejected[resource.name]
        self.live[resource.name] = self.accepted[resource.name] = resource
        self._changed(resource.name, revision)
        return True

    def collect(self, type_url: str, watchers: set[Watcher]) -> None:
        """Drop the records of removed names whose removal all streams (`watchers`) have sent and their clients have
        acknowledged. If there are too many records, the oldest are dropped in any case; a stream that still needs them
        must be restarted (`Behind`)."""
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
        self._changes.pop(name, None)  # to move the name to the end
        self._changes[name] = revision
        self.revision = revision
