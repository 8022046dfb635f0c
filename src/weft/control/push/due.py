"""Step 2 of a push, due: finds which groups and which hosts a change concerns.

Input: what was touched. Output: a `Due`: the hosts that may have changed, the new `GroupView`s, which groups get
another viewpoint, and the hosts to view again from each viewpoint. Where all groups of a viewpoint change in the same
way, they keep it, and only its key changes (`Viewpoints.move`). This step also decides whether groups are on demand
(`demand.py`); it translates nothing. Rule: its output grows with the change, not with the mesh, unless what a namespace
may see has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

import msgspec

from weft.control.push.demand import Demand
from weft.control.push.translated import TranslatedHosts
from weft.control.push.viewpoints import Failed, Look, Viewpoint, ViewpointKey, Viewpoints, viewpoint_key
from weft.mesh.calls import Address
from weft.mesh.mesh import Mesh
from weft.mesh.touched import EVERYWHERE, Touched
from weft.model.group import Group, ProxyKind
from weft.model.names import host_covers
from weft.model.on_demand import Telling
from weft.model.scope import Scope
from weft.translate import names
from weft.translate.view import GroupView, group_view


class Due(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    hosts: frozenset[str] = frozenset()  # hosts that may have changed, for any viewer
    looks: tuple[Look, ...] = ()  # hosts to view again, by viewpoint
    views: dict[Group, GroupView] = {}  # new views of groups whose own listeners may have changed
    moves: dict[Group, Viewpoint] = {}  # groups that move, with their new viewpoints
    calling: dict[Group, Viewpoint] = {}  # groups that have called something new, with their viewpoints
    held: dict[Group, tuple[str, ...]] = {}  # group → clusters whose held calls may continue now
    failed: Failed = {}  # groups whose view could not be computed


class DueStep:
    """Computes what is due. The state that it reads and updates is in `Viewpoints` and `Demand`."""

    def __init__(self, mesh: Mesh, viewpoints: Viewpoints, demand: Demand, translated: TranslatedHosts) -> None:
        self._mesh, self._viewpoints, self._demand, self._translated = mesh, viewpoints, demand, translated

    def change(self, touched: Touched, retold: Set[Group] = frozenset()) -> Due:
        """Return what must be computed after a change. `touched`: what the change may have affected. `retold`: groups
        for which it is decided again whether they are on demand, even if the change does not concern them."""
        hosts = self._changed_hosts(touched.hosts)
        viewpoints = [viewpoint for viewpoint in self._viewpoints.all() if viewpoint.groups]
        retold |= {group for point in viewpoints if self._demand.is_due(point, hosts) for group in point.groups}
        failed: Failed = {}
        views = self._group_views(touched, hosts, retold, failed)
        moves = self._viewpoints.move(self._keys(touched, views))
        looks = [self._first_look(group, viewpoint) for group, viewpoint in _newcomers(moves.groups).items()]
        for viewpoint in viewpoints:
            key = viewpoint.key
            hosts_to_view = self._hosts_there(hosts, touched.at_gateways, viewpoint)
            if viewpoint in moves.rekeyed or _applies(touched.scopes, key.scope.namespace):
                hosts_to_view |= self._all_hosts(key.scope) | self._translated.all_hosts(viewpoint)
            if hosts_to_view or viewpoint in moves.rekeyed:
                looks.append(Look(viewpoint, next(iter(viewpoint.groups)), hosts_to_view))
        return Due(hosts=hosts, looks=tuple(looks), views=views, moves=moves.groups, failed=failed)

    def arrival(self, group: Group) -> Due:
        """Return what must be computed when the first proxy of a group connects: the group's own view; the hosts to
        view, if the group is the first of its viewpoint; and the release of held calls to the addresses that the group
        has called before."""
        scope = self._mesh.scope(group)
        view = group_view(self._mesh, group, self._demand.tell(group, scope))
        viewpoint = self._viewpoints.at(viewpoint_key(group, scope, view))
        looks = () if viewpoint.groups else (self._first_look(group, viewpoint),)
        released = _held(self._demand.calls.of(group).addresses)
        return Due(looks=looks, views={group: view}, moves={group: viewpoint}, held={group: released})

    def calls(self, group: Group, addresses: Iterable[Address]) -> Due:
        """Return what must be computed after proxies of a group have called hosts: the views of the hosts that the
        group calls, and the release of its held calls to `addresses`. `addresses` is empty if the hosts were
        called by name, not by address."""
        viewpoint = self._viewpoints.of(group)
        return Due(calling={group: viewpoint} if viewpoint is not None else {}, held={group: _held(addresses)})

    def _changed_hosts(self, touched: frozenset[str]) -> frozenset[str]:
        """Return all hosts that may have changed, given the `touched` hosts: a wildcard is replaced by every host that
        it covers, and hosts whose routes name a changed host are added."""
        if wildcards := [host for host in touched if host.startswith("*")]:
            touched |= {host for host in self._all_hosts() for wide in wildcards if host_covers(wide, host)}
        return touched | self._translated.readers(touched)

    def _group_views(
        self, touched: Touched, hosts: frozenset[str], retold: Set[Group], failed: Failed
    ) -> dict[Group, GroupView]:
        views: dict[Group, GroupView] = {}
        for group in self._viewpoints.groups():
            rescoped = _applies(touched.scopes, group.namespace)
            concerned = rescoped or group in retold or _applies(touched.inbound, group.namespace)
            if (
                concerned or group.kind is ProxyKind.GATEWAY
            ):  # gateways are few, and any host may change their listeners
                try:
                    telling = self._telling(group, hosts, rescoped=rescoped, retold=group in retold)
                    views[group] = group_view(self._mesh, group, telling)
                except Exception as error:  # noqa: BLE001 - reported at the end of the push
                    failed[group] = error
        return views

    def _telling(self, group: Group, hosts: frozenset[str], *, rescoped: bool, retold: bool) -> Telling:
        viewpoint = self._viewpoints.of(group)
        if viewpoint is None or not (rescoped or retold):
            return self._demand.telling(group)
        scope = self._mesh.scope(group) if rescoped else viewpoint.key.scope
        return self._demand.tell(group, scope, lambda: self._demand.keeps(viewpoint, hosts))

    def _keys(self, touched: Touched, views: dict[Group, GroupView]) -> dict[Group, ViewpointKey]:
        keys: dict[Group, ViewpointKey] = {}
        for group, view in views.items():
            viewpoint = self._viewpoints.of(group)
            rescoped = _applies(touched.scopes, group.namespace) or group.kind is ProxyKind.GATEWAY
            scope = self._mesh.scope(group) if rescoped or viewpoint is None else viewpoint.key.scope
            keys[group] = viewpoint_key(group, scope, view)
        return keys

    def _first_look(self, group: Group, viewpoint: Viewpoint) -> Look:
        return Look(viewpoint, group, self._all_hosts(viewpoint.key.scope))

    def _hosts_there(self, hosts: frozenset[str], at_gateways: frozenset[str], viewpoint: Viewpoint) -> frozenset[str]:
        """Return the hosts to view again from a viewpoint, after `hosts` have changed. For proxies other than
        gateways these are all of `hosts`. For gateways these are the changed hosts (including `at_gateways`,
        whose routes changed only for gateways) that the gateway's routes name now or named before, and every host
        that these routes newly name or no longer name."""
        scope = viewpoint.key.scope
        if scope.servers is None:
            return hosts
        now, before = self._mesh.edge(scope).hosts, self._translated.all_hosts(viewpoint)
        hosts |= at_gateways
        wildcards = [host for host in hosts if host.startswith("*")]
        covered = {host for host in now for wide in wildcards if host_covers(wide, host)}
        return (hosts & (now | before)) | (now ^ before) | covered

    def _all_hosts(self, scope: Scope | None = None) -> frozenset[str]:
        if scope is not None and scope.servers is not None:
            return self._mesh.edge(scope).hosts
        return frozenset({*self._mesh.hosts(), *self._mesh.routed_hosts()})


def _held(addresses: Iterable[Address]) -> tuple[str, ...]:
    return tuple(name for address in addresses for name in names.held(address))


def _newcomers(moves: dict[Group, Viewpoint]) -> dict[Group, Viewpoint]:
    """Return, for each viewpoint in `moves` that has no groups yet, the first group that moves to it, with the
    viewpoint."""
    first = {viewpoint: group for group, viewpoint in reversed(moves.items()) if not viewpoint.groups}
    return {group: viewpoint for viewpoint, group in first.items()}


def _applies(namespaces: frozenset[str], namespace: str) -> bool:
    return EVERYWHERE in namespaces or namespace in namespaces
