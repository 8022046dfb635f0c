"""Step 5 of a push, join: builds complete Envoy resources from the contributions of many hosts.

Input: the `Pieces` of `contribute.py`. Output: an `Update` with what differs from before, for each viewpoint and each
group. A group has the config of its viewpoint and its own (`compiled.py`); a resource to which both contribute is
stored with the group. This step owns the joined config of every viewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from weft.control.push.compiled import Compiled, RouteConfigurations, Update, merged
from weft.control.push.contribute import Assignments, OwnPiece, Pieces
from weft.control.push.viewpoints import Failed, Viewer, Viewpoint
from weft.model.group import Group
from weft.translate.built import Built
from weft.translate.contribution import VirtualHost


class ViewpointUpdate(msgspec.Struct, frozen=True, eq=False):
    touched: frozenset[str]  # hosts that may have changed for groups of the viewpoint
    update: Update
    rerouted: frozenset[str]  # hosts whose routes have changed


class GroupPieces(msgspec.Struct, frozen=True, eq=False):
    """Everything that may change in the config of groups themselves. Changes in the shared config of their viewpoints
    are not part of it. `moved`: groups that move, with their new viewpoints. `own`: what groups contribute themselves.
    `hosts`: what hosts contribute. `held`: the clusters whose held calls are released now."""

    moved: Mapping[Group, Viewpoint]  # groups that move, with their new viewpoints
    own: Mapping[Group, OwnPiece]
    hosts: Iterable[Pieces]
    held: Mapping[Group, Iterable[str]]  # clusters whose held calls are released now (`translate/hold.py`)


class JoinStep:
    def __init__(self) -> None:
        self._compiled: dict[Viewer, Compiled] = {}
        self._configurations = RouteConfigurations()

    def viewpoints(self, pieces: Iterable[Pieces], failed: Failed) -> dict[Viewpoint, ViewpointUpdate]:
        updates: dict[Viewpoint, ViewpointUpdate] = {}
        for of_viewer in pieces:
            if isinstance(viewpoint := of_viewer.viewer, Viewpoint):
                try:
                    updates[viewpoint] = self._viewpoint(viewpoint, of_viewer)
                except Exception as error:  # noqa: BLE001 - reported at the end of the push
                    failed[viewpoint] = error
        return updates

    def groups(
        self, common: Mapping[Viewpoint, ViewpointUpdate], pieces: GroupPieces, failed: Failed
    ) -> dict[Group, Update]:
        """Join the config of groups from `pieces` and return, by group, the resources that differ from before.
        `common`: the changes in the config of viewpoints, which is also part of the config of their groups. A group
        that fails is added to `failed`."""
        below = {group: update for viewpoint, update in common.items() for group in viewpoint.groups}
        hosts = {of_viewer.viewer: of_viewer for of_viewer in pieces.hosts if isinstance(of_viewer.viewer, Group)}
        updates: dict[Group, Update] = {}
        for group in dict.fromkeys((*pieces.own, *pieces.moved, *below, *hosts, *pieces.held)):
            try:
                updates[group] = self._group(group, pieces, below.get(group), hosts.get(group))
            except Exception as error:  # noqa: BLE001 - reported at the end of the push
                failed[group] = error
        return updates

    def assign(self, assignments: Mapping[Viewer, Assignments]) -> dict[Viewer, Update]:
        """Replace load assignments after a change of endpoints alone. Returns, by viewer, the resources that differ
        from before."""
        return {viewer: self._compiled[viewer].assign(by_host) for viewer, by_host in assignments.items()}

    def _viewpoint(self, viewpoint: Viewpoint, pieces: Pieces) -> ViewpointUpdate:
        compiled = self._compiled.get(viewpoint)
        if compiled is None:
            compiled = self._compiled[viewpoint] = Compiled(viewpoint.key, self._configurations.get)
        update, rerouted = compiled.renew(viewpoint.key, pieces.contributions, pieces.assignments)
        return ViewpointUpdate(pieces.touched, update, rerouted)

    def _group(self, group: Group, pieces: GroupPieces, below: ViewpointUpdate | None, hosts: Pieces | None) -> Update:
        updates: list[Update] = []
        own, moved, released = pieces.own.get(group), pieces.moved.get(group), pieces.held.get(group)
        compiled = self._compiled.get(group)
        if compiled is None:
            if own is None:
                raise LookupError(f"{group} has no config yet")
            compiled = self._compiled[group] = Compiled(own.view, self._configurations.get)
        if own is not None:
            updates.append(compiled.contribute_group(own.view, own.contribution))
        if moved is not None:
            updates.append(compiled.rest_upon(self._compiled[moved]))
        elif below is not None:
            updates.append(compiled.rejoin(below.rerouted))
        if hosts is not None:
            updates += (compiled.contribute(hosts.contributions), compiled.assign(hosts.assignments))
        if released is not None:
            updates.append(compiled.answer(released))
        return updates[0] if len(updates) == 1 else merged(updates)

    def forget(self, viewer: Viewer) -> None:
        """Drop the config of a viewer that no longer exists."""
        self._compiled.pop(viewer, None)

    def resource(self, group: Group, type_url: str, name: str) -> Built | None:
        compiled = self._compiled.get(group)
        return compiled.resource(type_url, name) if compiled is not None else None

    # Hosts that are left out of a route configuration because proxies rejected it (`control/quarantine.py`)

    def suspend(self, group: Group, route: str, accepted: bytes) -> tuple[dict[str, VirtualHost], Update]:
        """Revert the virtual hosts in which a rejected route configuration differs from the `accepted` one. Returns
        these virtual hosts as they were rejected, by host, and the resources that differ from before."""
        compiled = self._compiled.get(group)
        return compiled.suspend(route, accepted) if compiled is not None else ({}, {})

    def resume(self, group: Group, route: str, hosts: Iterable[str]) -> Update:
        compiled = self._compiled.get(group)
        return compiled.resume(route, hosts) if compiled is not None else {}

    def is_suspended(self, group: Group, route: str, host: str) -> bool:
        compiled = self._compiled.get(group)
        return compiled is not None and compiled.is_suspended(route, host)
