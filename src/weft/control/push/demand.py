"""What a group is to be told of. Where little can be called, that is all it may see. Where it is on demand
(`weft.dev/on-demand`), it is what can be called without an address of its own, what somebody named for it, what it was
told of before it was on demand, and what its proxies have called; and wherever routes lead from there.

Rule: what a change costs here depends on the change, not on how much there is, or was called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from itertools import count

from weft.control.push.place import Place
from weft.mesh.calls import Address, Calls
from weft.mesh.mesh import Mesh
from weft.model.group import Group, ProxyKind
from weft.model.on_demand import EVERYTHING, Brought, Telling, overflowing, retold, with_brought
from weft.model.scope import Scope
from weft.translate.view import service_view

Watcher = Group | Place


class Demand:
    def __init__(self, mesh: Mesh, calls: Calls) -> None:
        self._mesh = mesh
        self._turns = count(1)
        self._seen: dict[Group, frozenset[str]] = {}  # hosts that a group sees because its proxies call them
        self._roots: dict[Group, set[str]] = {}  # those of them that were called
        self._fresh: dict[Group, set[str]] = {}  # of these, those that it called since
        self._found: dict[Group, int] = {}  # the turn of its place when what it sees was found
        self.calls = calls

    # How groups are told

    def telling(self, group: Group) -> Telling:
        return self.calls.telling(group) or EVERYTHING

    def is_on(self, group: Group) -> bool:
        """Whether it is told of services when it calls them; of one that has no proxies yet, whether it will be."""
        telling = self.calls.telling(group)
        if telling is not None:
            return not telling.every
        return group.kind is ProxyKind.SIDECAR and self._mesh.on_demand(self._mesh.scope(group)).on

    def bring(self, group: Group, brought: Brought) -> bool:
        """What its proxies show of how they were told. Returns whether they are to be told in another way for that."""
        telling = self.calls.telling(group)
        if telling is not None and with_brought(telling, brought, ()) is telling:
            return False
        self.calls.bring(group, brought)
        return telling is not None

    def bring_hosts(self, group: Group, place: Place, hosts: Iterable[str]) -> bool:
        """The same, of proxies that brought these hosts together with calls that they hold. If there are some to which
        none of the calls leads, they were told of these before they were on demand, and have listeners from then."""
        called, strange = self.calls.of(group), self._mesh.reach(place.scope) & set(hosts) - place.told
        if not strange or not called.addresses:
            return False
        at = (service.host for address in called.addresses for service in self._mesh.services_at(address))
        held = reached(at, lambda host: self._leads(place, group, host))
        return not strange <= held and self.bring(group, Brought.HOSTS)

    def is_due(self, place: Place, hosts: frozenset[str]) -> bool:
        """Whether those who look from there are to be told in another way than they are. `hosts`: that changed."""
        if place.key[0] is not ProxyKind.SIDECAR or place.telling.too_many:
            return False
        if self._mesh.on_demand(place.scope).on == place.telling.every:
            return True
        return place.on_demand and (self._has_other_ranges(place) or bool(self.keeps(place, hosts)))

    def keeps(self, place: Place, hosts: frozenset[str]) -> frozenset[str]:
        """What those who look from there were told of without a call, and nobody who comes now will be, for its calls
        can be held from now on."""
        if not place.on_demand or self._has_other_ranges(place):
            return place.hosts
        lost = (hosts & place.always) - place.telling.kept
        return lost & self._mesh.reach(place.scope) if lost else lost

    def _has_other_ranges(self, place: Place) -> bool:
        return place.telling.ranges != self._mesh.virtual_ranges

    def tell(self, group: Group, scope: Scope, keeps: Callable[[], frozenset[str]] = frozenset) -> Telling:
        """How a group is told from now on. gRPC's own clients ask for each service by name, and are told of nothing
        else; gateways of what their routes name."""
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
        self.forget(group)
        self.calls.leave(group)

    # What is seen

    def seen_by(self, group: Group) -> frozenset[str]:
        """What it sees beyond what is seen from its place, as it was found last."""
        return self._seen.get(group, frozenset())

    def forget(self, group: Group) -> None:
        """It is told of everything: what it calls makes no difference."""
        for kept in (self._seen, self._roots, self._fresh, self._found):
            kept.pop(group, None)

    def move_place(self, place: Place, hosts: frozenset[str], group: Group) -> frozenset[str]:
        """Where not everything is seen: hosts that are seen from now on, or no more, because these may be others.
        `group`: any that looks from there."""
        before, place.looked = place.looked, place.key
        moved = before != place.key
        if moved:
            place.always, place.leads = set(), {}
        if not place.on_demand:
            place.told = frozenset()
            return frozenset()
        for host in hosts:
            was, leads = host in place.always, place.leads.pop(host, None)
            if self.is_always_told(place.scope, host) != was:
                (place.always.discard if was else place.always.add)(host)
                moved = True
            moved = moved or (leads is not None and leads != self._leads(place, group, host))
        if not moved:
            return frozenset()
        place.turn = next(self._turns)
        told = frozenset(reached({*place.always, *place.telling.kept}, lambda host: self._leads(place, group, host)))
        changed, place.told = place.told ^ told, told
        return changed

    def move_group(self, group: Group, place: Place, hosts: frozenset[str]) -> frozenset[str]:
        """The same of a group, with those of these hosts that it sees for itself."""
        seen, moved = self.seen_by(group), self._move_roots(group, hosts)
        fresh, before = self._fresh.pop(group, set()), frozenset[str]()
        if not moved and self._found.get(group) == place.turn:
            if not fresh:
                return hosts & seen
            before = seen  # and all that is reached from there
        else:
            fresh = self._roots[group]
        found = reached(fresh, lambda host: self._leads(place, group, host), before)
        self._seen[group], self._found[group] = before | (found - place.told), place.turn
        return seen ^ self._seen[group] | hosts & self._seen[group]

    def call(self, group: Group, addresses: Iterable[Address], hosts: Iterable[str]) -> None:
        """These are new among those that it calls."""
        if group in self._roots:
            at = (service.host for address in addresses for service in self._mesh.services_at(address))
            fresh = {*hosts, *at} - self._roots[group]
            self._roots[group] |= fresh
            self._fresh.setdefault(group, set()).update(fresh)

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

    def _leads(self, place: Place, group: Group, host: str) -> tuple[str, ...]:
        """Where a host's routes lead: to the same from everywhere in a place."""
        found = place.leads.get(host)
        if found is None:
            routed = self._mesh.virtual_services(host, place.scope)
            view = service_view(self._mesh, group, place.scope, host) if routed else None
            found = place.leads[host] = tuple(target.host for target in view.targets) if view is not None else ()
        return found

    def is_always_told(self, scope: Scope, host: str) -> bool:
        """Whether there is a host that is told of before anybody calls it."""
        if host in self._mesh.reach(scope):
            return False
        return self._mesh.service(host, scope) is not None or bool(self._mesh.virtual_services(host, scope))


def reached(roots: Iterable[str], leads_to: Callable[[str], Iterable[str]], before: Set[str] = frozenset()) -> set[str]:
    """These hosts, and wherever their routes lead: a call that is sent on must find whom it is sent to. `before`: where
    nobody needs to look again."""
    found: set[str] = set()
    ahead = list(roots)
    while ahead:
        host = ahead.pop()
        if host not in found and host not in before:
            found.add(host)
            ahead.extend(leads_to(host))
    return found
