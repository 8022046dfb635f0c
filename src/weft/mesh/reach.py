"""Which services could be called from a scope, and told of at their first call: kept up service by service, so that
nobody counts a whole mesh when one of them changes. `mesh.py` owns it.

Rule: what is forgotten is counted again when somebody asks; nothing is wrong for that, only slower.
"""

from __future__ import annotations

from collections.abc import Set

from weft.mesh.registry import Registry
from weft.model.scope import Scope
from weft.model.service import Service


class ReachableHosts:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._hosts: dict[Scope, frozenset[str]] = {}  # the same set where it is equal, as it mostly is
        self._covered: dict[str, tuple[Service, ...]] = {}  # of those that claim a host, whom addresses tell apart

    def of(self, scope: Scope) -> Set[str]:
        """Hosts whose first call from there can be told from every other by its address."""
        found = self._hosts.get(scope)
        if found is None:
            named = named_by(scope)
            names = self._registry.services.names()
            fresh = frozenset(host for host in names if host not in named and self._is_within(scope, host))
            found = self._hosts[scope] = next((each for each in self._hosts.values() if each == fresh), fresh)
        return found

    @property
    def scopes(self) -> Set[Scope]:
        """From where somebody has asked."""
        return self._hosts.keys()

    def moved(self, host: str) -> None:
        """Somebody else may stand for this host now."""
        self._covered.pop(host, None)
        turned: dict[int, frozenset[str]] = {}  # by the set that was: who shared it shares what it has become
        for scope, hosts in tuple(self._hosts.items()):
            within = host not in named_by(scope) and self._is_within(scope, host)
            if within != (host in hosts):
                if id(hosts) not in turned:
                    turned[id(hosts)] = hosts ^ {host}
                self._hosts[scope] = turned[id(hosts)]

    def forget(self, scope: Scope | None = None) -> None:
        """Nobody looks from there any more; None: all of them must be counted again."""
        if scope is None:
            self._hosts.clear()
            self._covered.clear()
        else:
            self._hosts.pop(scope, None)

    def _is_within(self, scope: Scope, host: str) -> bool:
        covered = self._covered.get(host)
        if covered is None:  # it is the same from everywhere, and takes longer than all the rest
            claims = self._registry.services.to(host)
            covered = tuple(each for each in claims if self._registry.virtual.covers(each))
            self._covered[host] = covered
        service = seen(self._registry, host, scope) if covered else None
        return any(service is each for each in covered)


def seen(registry: Registry, host: str, scope: Scope) -> Service | None:
    """The service that a host means to a viewer: its own namespace's claim, then the best claim it may see."""
    best: Service | None = None
    for service in registry.services.to(host):
        if not scope.ports(service):
            continue
        if service.namespace == scope.namespace:
            return service
        best = best or service
    return best


def named_by(scope: Scope) -> Set[str]:
    """Hosts that are told of without a call: those that a Sidecar names in full, and whom proxies ask themselves."""
    if scope.imports is None and not scope.asked:
        return frozenset()
    return {*(host for host, _ in scope.asked), *(entry.host for entry in scope.imports or ())}
