"""What a group is to be told of. Without `weft.dev/on-demand` that is all it may see. With it, it is what can be called
without an address of its own, what somebody named for it, and what its proxies have called; and wherever routes lead
from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weft.model.calls import Calls
from weft.model.group import Group, ProxyKind
from weft.model.mesh import Mesh
from weft.model.scope import Scope


class Demand:
    def __init__(self, mesh: Mesh, calls: Calls) -> None:
        self._mesh = mesh
        self.calls = calls

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
        at = (service.host for address in called.addresses for service in self._mesh.services_at(*address))
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
