"""What a group is to be told of. Without `weft.dev/on-demand` that is all it may see. With it, it is what can be called
without an address of its own, what somebody named for it, and what its proxies have called; and wherever routes lead
from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from weft.control.place import Place
from weft.control.translation import Made
from weft.model.calls import Calls
from weft.model.group import Group, ProxyKind
from weft.model.mesh import Mesh
from weft.model.scope import Scope
from weft.translate.view import service_view

Watcher = Group | Place


class Demand:
    """`watching`: host → who sees it, and how; `push.py` keeps it."""

    def __init__(self, mesh: Mesh, calls: Calls, watching: Mapping[str, Mapping[Watcher, Made]]) -> None:
        self._mesh = mesh
        self._watching = watching
        self._seen: dict[Group, frozenset[str]] = {}  # hosts that a group sees because its proxies call them
        self.calls = calls

    def seen_by(self, group: Group) -> frozenset[str]:
        """What it sees beyond what is seen from its place, as it was found last."""
        return self._seen.get(group, frozenset())

    def leave(self, group: Group) -> None:
        self._seen.pop(group, None)

    def move_place(self, place: Place, hosts: frozenset[str], group: Group) -> frozenset[str]:
        """Where not everything is seen: hosts that are seen from now on, or no more, because these may be others.
        `group`: any that looks from there."""
        place.on_demand = self.is_on(group.kind)
        if not place.on_demand:
            place.always, place.told = set(), frozenset()
            return frozenset()
        for host in hosts:
            (place.always.add if self.is_always_told(place.scope, host) else place.always.discard)(host)
        told = frozenset(reached(place.always, self._leads_to(group, place, hosts)))
        moved, place.told = place.told ^ told, told
        return moved

    def move_group(
        self, group: Group, place: Place, hosts: frozenset[str], every: Callable[[], Iterable[str]]
    ) -> frozenset[str]:
        """The same of a group, with those of these hosts that it sees for itself. `every`: all that there are."""
        roots = self.called(group, every)
        seen = frozenset(reached(roots, self._leads_to(group, place, hosts)) - place.told)
        moved = self.seen_by(group) ^ seen
        self._seen[group] = seen
        return moved | hosts & seen

    def _leads_to(self, group: Group, place: Place, hosts: frozenset[str]) -> Callable[[str], Iterable[str]]:
        """Where a host's routes lead, by what is known of it, unless it may be another now."""

        def targets(host: str) -> Iterable[str]:
            watching = self._watching.get(host, {})
            made = watching.get(group) or watching.get(place) if host not in hosts else None
            view = made.view if made is not None else service_view(self._mesh, group, place.scope, host)
            return (target.host for target in view.targets) if view is not None else ()

        return targets

    def is_on(self, kind: ProxyKind) -> bool:
        """gRPC's own clients ask for each service by name, and are told of nothing else."""
        return kind is ProxyKind.SIDECAR and self._mesh.settings.on_demand

    def is_always_told(self, scope: Scope, host: str) -> bool:
        """Whether there is a host that is told of before anybody calls it."""
        service = self._mesh.service(host, scope)
        if service is None:
            return bool(self._mesh.virtual_services(host, scope))
        named = host in scope.asked or any(entry.host == host for entry in scope.imports or ())
        return named or not self._mesh.can_be_held(service)

    def called(self, group: Group, hosts: Callable[[], Iterable[str]]) -> set[str]:
        """The hosts that a group has called. `hosts`: all that there are, for one that calls too many."""
        called = self.calls.of(group)
        if called.everything:
            return set(hosts())
        at = (service.host for address in called.addresses for service in self._mesh.services_at(address))
        return {*called.hosts, *at}


def reached(roots: Iterable[str], leads_to: Callable[[str], Iterable[str]]) -> set[str]:
    """These hosts, and wherever their routes lead: a call that is sent on must find whom it is sent to."""
    found: set[str] = set()
    ahead = list(roots)
    while ahead:
        host = ahead.pop()
        if host not in found:
            found.add(host)
            ahead.extend(leads_to(host))
    return found
