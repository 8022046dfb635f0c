"""Step 3 of a push, view: computes what each viewer sees of the hosts that are due.

Input: the looks of `due.py`. Output: `Views`: for one viewer, the current view of each host (`weft.translate.view`), or
None if the viewer does not see the host. The views of a viewpoint are for all of its groups; hosts that depend on the
labels of the caller, or on its calls, are viewed for each group. Rule: a host whose view cannot be computed is left
out, so that its config stays unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Set

import msgspec

from weft.control.push.demand import Demand
from weft.control.push.due import Due
from weft.control.push.translated import TranslatedHosts
from weft.control.push.viewpoints import Failed, Look, Viewer, Viewpoint
from weft.mesh.mesh import Mesh
from weft.model.group import Group
from weft.model.settings import Settings
from weft.translate.view import ServiceView, depends_on_labels, service_view

log = logging.getLogger(__name__)


class Views(msgspec.Struct, frozen=True, eq=False):
    viewer: Viewer
    settings: Settings
    touched: frozenset[str]  # hosts that may have changed for this viewer, or for a group of this viewpoint
    hosts: dict[str, ServiceView | None]
    per_group: Set[str] = frozenset()  # hosts that are viewed separately for each group of this viewpoint


class ViewStep:
    """Computes views. Its only state is in `Demand`: which hosts on-demand groups are shown."""

    def __init__(self, mesh: Mesh, demand: Demand, translated: TranslatedHosts) -> None:
        self._mesh, self._demand, self._translated = mesh, demand, translated

    def from_viewpoints(self, looks: Iterable[Look], failed: Failed) -> list[Views]:
        """Return, for each of `looks`, the views of its hosts that all groups of the look's viewpoint have in common. A
        viewpoint that fails is added to `failed`."""
        views: list[Views] = []
        for look in looks:
            try:
                views.append(self._from_viewpoint(look))
            except Exception as error:  # noqa: BLE001 - reported at the end of the push
                failed[look.viewpoint] = error
        return views

    def of_groups(
        self,
        due: Due,
        touched: Mapping[Viewpoint, frozenset[str]],
        moved: Mapping[Group, Viewpoint],
        failed: Failed,
    ) -> list[Views]:
        """Return the views that groups have separately from their viewpoint, after a push has found what is due
        (`due`): of hosts that are translated for each group, and of hosts that an on-demand group calls. A group in
        `moved` (with its new viewpoint) gets the views of all these hosts. Any other group gets only the views of hosts
        that `touched` lists for its viewpoint, and of hosts that it newly or no longer calls. A group that fails is
        added to `failed`."""
        looks: dict[Group, tuple[Viewpoint, Set[str], frozenset[str]]] = {}
        for group, viewpoint in due.calling.items():
            looks[group] = viewpoint, frozenset(), frozenset()
        for viewpoint, hosts in touched.items():
            own = self._translated.own_hosts(viewpoint, hosts)
            for group in own if viewpoint.key.telling.every else viewpoint.groups:
                looks[group] = viewpoint, own.get(group, frozenset()), hosts
        for group, viewpoint in moved.items():
            before = self._translated.hosts(group) | self._demand.called_by(group)
            looks[group] = viewpoint, before | self._translated.per_group(viewpoint), due.hosts
        views: list[Views] = []
        for group, look in looks.items():
            try:
                views.append(self._of_group(group, *look))
            except Exception as error:  # noqa: BLE001 - reported at the end of the push
                failed[group] = error
        return views

    def _of_group(self, group: Group, viewpoint: Viewpoint, hosts: Set[str], touched: frozenset[str]) -> Views:
        """Return the group's own views, which it does not share with its viewpoint: of `hosts`, and for an on-demand
        group also of those `touched` hosts that it calls, and of hosts that it newly calls or no longer calls.
        The view of a host is None if the group has no own view of the host (any more)."""
        key, called = viewpoint.key, frozenset[str]()
        if key.telling.every:
            self._demand.forget(group)
        else:
            hosts = hosts | self._demand.show_called(group, viewpoint, touched.union(hosts))
            called = self._demand.called_by(group)
        own = self._translated.per_group(viewpoint)
        views: dict[str, ServiceView | None] = {}
        for host in hosts:
            try:
                is_own = host in own or host in called
                views[host] = (
                    service_view(self._mesh, group, key.scope, host, held=key.telling.held) if is_own else None
                )
            except Exception:
                log.exception("cannot compute the view of %s for %s; it stays unchanged", host, group)
        return Views(group, key.settings, touched, views)

    def _from_viewpoint(self, look: Look) -> Views:
        viewpoint, key = look.viewpoint, look.viewpoint.key
        touched = due = look.hosts | self._demand.show(look)
        shown: frozenset[str] = frozenset()
        if not key.telling.every:
            shown, common = self._demand.told(viewpoint), self._translated.hosts(viewpoint)
            own = self._translated.per_group(viewpoint)
            due = frozenset(host for host in touched if host in shown or host in common or host in own)
        views: dict[str, ServiceView | None] = {}
        per_group: set[str] = set()
        for host in due:
            try:
                is_shown = key.telling.every or host in shown
                view = (
                    service_view(self._mesh, look.group, key.scope, host, held=key.telling.held) if is_shown else None
                )
                if view is not None and depends_on_labels(self._mesh, view, key.scope.namespace):
                    per_group.add(host)
                    view = None
                views[host] = view
            except Exception:  # a defect with one host must not delay the changes of others
                log.exception("cannot compute the view of %s for %s; it stays unchanged", host, look.group)
        return Views(viewpoint, key.settings, touched, views, per_group)
