"""Decides which hosts groups are sent. In a small mesh, these are all hosts that a group may see. With on-demand CDS
(`weft.dev/on-demand`), these are the hosts whose calls cannot be held, hosts that an object names for the group,
hosts that the group was sent before it was on demand, hosts that its proxies have called, and every host that the
routes of these hosts lead to.

Input: changed hosts and the calls of groups. Output: the hosts to show, for a viewpoint and for a group. Rule: the cost
of a change depends on the change, not on the number of hosts or calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from itertools import count

from weft.control.push.translated import TranslatedHosts
from weft.control.push.viewpoints import Look, Viewpoint, ViewpointKey
from weft.mesh.calls import Address, Calls
from weft.mesh.mesh import Mesh
from weft.model.group import Group, ProxyKind
from weft.model.on_demand import EVERYTHING, Brought, Telling, overflowing, retold, with_brought
from weft.model.scope import Scope
from weft.translate.view import service_view


class _Shown:
    """The hosts that an on-demand viewpoint (a set of groups that see the mesh alike) shows to all of its groups,
    called or not."""

    def __init__(self) -> None:
        self.key: ViewpointKey | None = None  # the viewpoint's key for which the other fields were computed
        self.always: set[str] = set()  # hosts that are shown before they are called
        self.told: frozenset[str] = frozenset()  # hosts of `always`, and all hosts that their routes lead to
        self.targets: dict[str, tuple[str, ...]] = {}  # host → targets of its routes, computed when needed
        self.turn = 0  # a new number whenever any field changes


class Demand:
    def __init__(self, mesh: Mesh, calls: Calls, translated: TranslatedHosts) -> None:
        self.calls = calls
        self._mesh, self._translated = mesh, translated
        self._turns = count(1)
        self._shown: dict[Viewpoint, _Shown] = {}
        self._called: dict[Group, frozenset[str]] = {}  # group → hosts that it sees because its proxies call them
        # Group → hosts that its proxies have called, without the hosts that routes lead to.
        self._roots: dict[Group, set[str]] = {}
        self._fresh: dict[Group, set[str]] = {}  # hosts added to `_roots` since `_called` was computed
        self._turn_of: dict[Group, int] = {}  # group → `turn` of its viewpoint when `_called` was computed

    # Whether groups are on demand

    def telling(self, group: Group) -> Telling:
        return self.calls.telling(group) or EVERYTHING

    def is_on(self, group: Group) -> bool:
        """Whether the group is on demand; for a group that has no proxies yet, whether it would be."""
        telling = self.calls.telling(group)
        if telling is not None:
            return not telling.every
        return group.kind is ProxyKind.SIDECAR and self._mesh.on_demand(self._mesh.scope(group)).on

    def bring(self, group: Group, brought: Brought) -> bool:
        """Record what is known about the config that reconnecting proxies of the group have, from another replica or
        from this one before a restart (`brought`; it is concluded from their subscriptions). Returns whether the
        group's on-demand state must be decided again, because the config of these proxies does not fit that state."""
        telling = self.calls.telling(group)
        if telling is not None and with_brought(telling, brought, ()) is telling:
            return False
        self.calls.bring(group, brought)
        return telling is not None

    def is_due(self, viewpoint: Viewpoint, hosts: frozenset[str]) -> bool:
        """Whether the on-demand state of a viewpoint's groups must be decided again after these `hosts` have changed.
        False for gateways, gRPC clients and groups that have called too many hosts."""
        key = viewpoint.key
        if key.kind is not ProxyKind.SIDECAR or key.telling.too_many:
            return False
        if self._mesh.on_demand(key.scope).on == key.telling.every:
            return True
        return not key.telling.every and (self._has_other_ranges(key) or bool(self.keeps(viewpoint, hosts)))

    def keeps(self, viewpoint: Viewpoint, hosts: frozenset[str]) -> frozenset[str]:
        """Return the hosts whose config the groups of a viewpoint have and must keep when their on-demand state is
        decided again, although they may not have called them. If the groups get every service so far, or if the address
        ranges in which calls are held have changed, the result is all hosts that the groups have. Otherwise it is those
        of the changed `hosts` that were sent to the groups without a call, because calls to them could not be held."""
        key = viewpoint.key
        if key.telling.every or self._has_other_ranges(key):
            return self._translated.all_hosts(viewpoint)
        shown = self._shown.get(viewpoint)
        lost = (hosts & shown.always) - key.telling.kept if shown is not None else frozenset[str]()
        return lost & self._mesh.reach(key.scope) if lost else lost

    def _has_other_ranges(self, key: ViewpointKey) -> bool:
        return key.telling.ranges != self._mesh.virtual_ranges

    def tell(self, group: Group, scope: Scope, keeps: Callable[[], frozenset[str]] = frozenset) -> Telling:
        """Decide and record how the group gets services from now on: all at once, or on demand. Only sidecars can be on
        demand: proxyless gRPC clients subscribe to each service by name, and gateways need exactly what their routes
        name. `keeps`: returns the hosts that the group keeps even if it has not called them. `scope`: the services that
        the group may see."""
        before = self.calls.telling(group)
        if group.kind is not ProxyKind.SIDECAR:
            telling = EVERYTHING
        elif self.calls.fixed:
            telling = before or EVERYTHING
        elif self.calls.of(group).everything:
            telling = overflowing(before)
        else:
            judged, ranges = self._mesh.on_demand(scope), self._mesh.virtual_ranges
            lives = judged.on and before is not None
            telling = retold(before, judged, ranges, keeps() if lives else frozenset())
            telling = with_brought(telling, self.calls.brought(group), ranges)
        self.calls.tell(group, telling)
        return telling

    def leave(self, group: Group) -> None:
        """Drop everything that is stored for a group, after its last proxy has disconnected."""
        self.forget(group)
        self.calls.leave(group)

    # What a viewpoint shows

    def told(self, viewpoint: Viewpoint) -> frozenset[str]:
        """Return the hosts that an on-demand viewpoint shows to all of its groups, as last computed."""
        shown = self._shown.get(viewpoint)
        return shown.told if shown is not None else frozenset()

    def show(self, look: Look) -> frozenset[str]:
        """Compute which hosts an on-demand viewpoint shows to all of its groups, called or not, after the hosts of
        `look` may have changed. Returns the hosts that are newly shown or no longer shown; none if the viewpoint is not
        on demand."""
        key = look.viewpoint.key
        if key.telling.every:
            if self._shown.pop(look.viewpoint, None) is not None:
                for group in look.viewpoint.groups:
                    self.forget(group)
            return frozenset()
        shown = self._shown.setdefault(look.viewpoint, _Shown())
        moved = shown.key != key
        if moved:
            shown.key, shown.always, shown.targets = key, set(), {}
        for host in look.hosts:
            was, targets = host in shown.always, shown.targets.pop(host, None)
            if self._is_always_told(key.scope, host) != was:
                (shown.always.discard if was else shown.always.add)(host)
                moved = True
            moved = moved or (
                targets is not None and targets != self._targets(look.viewpoint, key.scope, look.group, host)
            )
        if not moved:
            return frozenset()
        shown.turn = next(self._turns)
        roots = {*shown.always, *key.telling.kept}
        hosts = frozenset(reached(roots, lambda host: self._targets(look.viewpoint, key.scope, look.group, host)))
        changed, shown.told = shown.told ^ hosts, hosts
        return changed

    def forget_viewpoint(self, viewpoint: Viewpoint) -> None:
        self._shown.pop(viewpoint, None)

    # What a group sees because its proxies call it

    def called_by(self, group: Group) -> frozenset[str]:
        """Return the hosts that the group sees only because it calls them, in addition to the hosts that its
        viewpoint shows to all of its groups. They are those that `show_called` computed last."""
        return self._called.get(group, frozenset())

    def call(self, group: Group, addresses: Iterable[Address], hosts: Iterable[str]) -> None:
        """Record that the group calls these addresses and hosts for the first time."""
        if group in self._roots:
            at = (service.host for address in addresses for service in self._mesh.services_at(address))
            fresh = {*hosts, *at} - self._roots[group]
            self._roots[group] |= fresh
            self._fresh.setdefault(group, set()).update(fresh)

    def show_called(self, group: Group, viewpoint: Viewpoint, hosts: frozenset[str]) -> frozenset[str]:
        """Compute which hosts a group of `viewpoint` sees because it calls them, after `hosts` may have changed. Hosts
        that the viewpoint shows to all of its groups do not count. Returns the hosts whose views must be computed for
        the group: those of `hosts` that it sees because it calls them, and all hosts that it newly sees, or no longer
        sees, for this reason."""
        before, moved = self.called_by(group), self._move_roots(group, hosts)
        fresh, known = self._fresh.pop(group, set()), frozenset[str]()
        turn, scope = self._shown[viewpoint].turn, viewpoint.key.scope
        if not moved and self._turn_of.get(group) == turn:
            if not fresh:
                return hosts & before
            known = before  # the routes of these hosts were followed already
        else:
            fresh = self._roots[group]
        called = reached(fresh, lambda host: self._targets(viewpoint, scope, group, host), known)
        self._called[group], self._turn_of[group] = known | (called - self.told(viewpoint)), turn
        return before ^ self._called[group] | hosts & self._called[group]

    def forget(self, group: Group) -> None:
        """Drop the recorded calls of a group, because they have no effect on a group that is sent every service."""
        for kept in (self._called, self._roots, self._fresh, self._turn_of):
            kept.pop(group, None)

    def _move_roots(self, group: Group, hosts: frozenset[str]) -> bool:
        called, roots = self.calls.of(group), self._roots.get(group)
        if roots is None:
            at = (service.host for address in called.addresses for service in self._mesh.services_at(address))
            self._roots[group] = {*called.hosts, *at}
            return True
        moved = False
        for host in hosts:
            was = host in roots
            if was != (host in called.hosts or any(at in called.addresses for at in self._mesh.addresses_of(host))):
                (roots.discard if was else roots.add)(host)
                moved = True
        return moved

    def _targets(self, viewpoint: Viewpoint, scope: Scope, group: Group, host: str) -> tuple[str, ...]:
        """Return the hosts to which the routes of `host` lead. They are the same for all groups of a viewpoint."""
        known = self._shown[viewpoint].targets if viewpoint in self._shown else {}
        targets = known.get(host)
        if targets is None:
            routed = self._mesh.virtual_services(host, scope)
            view = service_view(self._mesh, group, scope, host) if routed else None
            targets = known[host] = tuple(target.host for target in view.targets) if view is not None else ()
        return targets

    def _is_always_told(self, scope: Scope, host: str) -> bool:
        """Whether the host exists and must be shown before it is called, because calls to it cannot be held."""
        if host in self._mesh.reach(scope):
            return False
        return self._mesh.service(host, scope) is not None or bool(self._mesh.virtual_services(host, scope))


def reached(roots: Iterable[str], targets: Callable[[str], Iterable[str]], known: Set[str] = frozenset()) -> set[str]:
    """Return `roots` and every host that their routes lead to, directly or through other hosts (`targets` returns the
    hosts to which the routes of one host lead), because a routed call needs its destination. Hosts in `known` are left
    out, and their routes are not followed."""
    hosts: set[str] = set()
    ahead = list(roots)
    while ahead:
        host = ahead.pop()
        if host not in hosts and host not in known:
            hosts.add(host)
            ahead.extend(targets(host))
    return hosts
