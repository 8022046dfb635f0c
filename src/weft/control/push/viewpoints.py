"""Viewpoints: sets of groups that see the mesh in the same way, and so share most of their config.

A viewpoint is defined by its `ViewpointKey`: a kind of proxy, a scope, settings, an outbound policy, a locality (where
any rule depends on it) and the on-demand state. What all groups of a viewpoint see alike, whatever their labels, is
viewed, translated, joined and recorded once for all of them.

`due.py` decides which groups move between viewpoints, and `push.py` adds and removes groups; the other steps keep their
own state by viewpoint. Rule: only `Viewpoints` writes a `Viewpoint`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

import msgspec

from weft.mesh.mesh import Mesh
from weft.model.group import Group, ProxyKind
from weft.model.on_demand import Telling
from weft.model.scope import Scope
from weft.model.settings import Settings
from weft.model.sidecar import Outbound
from weft.translate.view import GroupView


class ViewpointKey(msgspec.Struct, frozen=True, cache_hash=True):
    """Everything apart from the mesh that the shared config of a viewpoint depends on. `scope`: the services that its
    groups may see. `policy`: what happens to calls to unknown destinations. `locality`: that of the groups; "" if
    nothing depends on it. `telling`: the on-demand state."""

    kind: ProxyKind
    scope: Scope
    settings: Settings
    policy: Outbound
    locality: str
    telling: Telling


class Viewpoint(msgspec.Struct, frozen=True, eq=False):
    """One viewpoint: a set of groups with the same key. If all of its groups get the same new key together, the
    viewpoint stays the same object, so that the groups' shared config is updated in place instead of built anew.
    Only `Viewpoints` may change a viewpoint."""

    key: ViewpointKey
    groups: Collection[Group]  # empty while the viewpoint is new, and when the last group has left


Viewer = Group | Viewpoint  # a viewpoint for what all of its groups see alike, a group for the rest
Failed = dict[Viewer, Exception]  # viewers that keep their config because a defect made their push fail


class Look(msgspec.Struct, frozen=True, eq=False):
    """Hosts that must be viewed again from a viewpoint, because they may have changed. `group`: a group of the
    viewpoint, for which the hosts are viewed; the views are the same for its other groups."""

    viewpoint: Viewpoint
    group: Group  # a group of the viewpoint, for which the hosts are viewed
    hosts: frozenset[str]


class Moves(msgspec.Struct, frozen=True, eq=False):
    """The result of `Viewpoints.move`. `rekeyed`: viewpoints that got a new key and keep their groups. `groups`: groups
    that must move, with their new viewpoints, which may have no groups yet."""

    rekeyed: frozenset[Viewpoint]  # viewpoints that have a new key
    groups: dict[Group, Viewpoint]  # groups that must move, with their new viewpoints, which may have no groups yet


class Viewpoints:
    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._by_key: dict[ViewpointKey, Viewpoint] = {}
        self._groups: dict[Viewpoint, dict[Group, None]] = {}
        self._of: dict[Group, Viewpoint] = {}

    def all(self) -> tuple[Viewpoint, ...]:
        return tuple(self._by_key.values())

    def groups(self) -> Collection[Group]:
        return self._of.keys()

    def of(self, group: Group) -> Viewpoint | None:
        return self._of.get(group)

    def at(self, key: ViewpointKey) -> Viewpoint:
        """Return the viewpoint with this key, or a new one without groups."""
        viewpoint = self._by_key.get(key)
        if viewpoint is None:
            groups: dict[Group, None] = {}
            viewpoint = self._by_key[key] = Viewpoint(key, groups)
            self._groups[viewpoint] = groups
        return viewpoint

    def move(self, keys: Mapping[Group, ViewpointKey]) -> Moves:
        """Apply new keys of groups. If all groups of a viewpoint get the same new key, and no other viewpoint has
        that key, the viewpoint itself gets the key. All other groups with a new key must move to another
        viewpoint: they are returned, and `put` moves them."""
        changed: dict[Viewpoint, dict[Group, ViewpointKey]] = defaultdict(dict)
        for group, key in keys.items():
            viewpoint = self._of[group]
            if key != viewpoint.key:
                changed[viewpoint][group] = key
        rekeyed: list[Viewpoint] = []
        leaving: dict[Group, ViewpointKey] = {}
        for viewpoint, moving in changed.items():
            key = next(iter(moving.values()))
            is_together = len(moving) == len(viewpoint.groups) and all(other == key for other in moving.values())
            if is_together and key not in self._by_key:
                self._rekey(viewpoint, key)
                rekeyed.append(viewpoint)
            else:
                leaving.update(moving)
        return Moves(frozenset(rekeyed), {group: self.at(key) for group, key in leaving.items()})

    def put(self, moved: Mapping[Group, Viewpoint]) -> list[Viewpoint]:
        """Move each group in `moved` to its new viewpoint. Returns the viewpoints that they left."""
        left: list[Viewpoint] = []
        for group, viewpoint in moved.items():
            left += self.remove(group)
            self._of[group] = viewpoint
            self._groups[viewpoint][group] = None
        return left

    def remove(self, group: Group) -> list[Viewpoint]:
        """Remove a group. Returns the viewpoint that it left, if any. A viewpoint is dropped with its last group."""
        viewpoint = self._of.pop(group, None)
        if viewpoint is None:
            return []
        del self._groups[viewpoint][group]
        self.discard_unused(viewpoint)
        return [viewpoint]

    def discard_unused(self, viewpoint: Viewpoint) -> None:
        """Drop a viewpoint that has no groups."""
        if not viewpoint.groups and self._groups.pop(viewpoint, None) is not None:
            del self._by_key[viewpoint.key]
            self._leave_scope(viewpoint.key.scope)

    def leave_unused(self) -> None:
        """Drop the mesh's indexes of scopes that no viewpoint has."""
        for scope in self._mesh.looked_from - {key.scope for key in self._by_key}:
            self._mesh.leave(scope)

    def _rekey(self, viewpoint: Viewpoint, key: ViewpointKey) -> None:
        before = viewpoint.key
        del self._by_key[before]
        msgspec.structs.force_setattr(viewpoint, "key", key)
        self._by_key[key] = viewpoint
        self._leave_scope(before.scope)

    def _leave_scope(self, scope: Scope) -> None:
        if all(key.scope != scope for key in self._by_key):
            self._mesh.leave(scope)


def viewpoint_key(group: Group, scope: Scope, view: GroupView) -> ViewpointKey:
    return ViewpointKey(group.kind, scope, view.settings, view.policy, view.locality, view.telling)
