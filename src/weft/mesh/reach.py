"""Cache of the hosts that proxies of a scope can get on demand, at their first call. It is updated service by
service, so that a changed service does not cost a pass over the whole mesh. `mesh.py` owns it.

Rule: a dropped entry is computed again at the next read, so dropping entries is always correct, only slower.
"""

from __future__ import annotations

from collections.abc import Set

from weft.mesh.claims import strength
from weft.mesh.registry import Registry
from weft.model.scope import Audience, Scope, audience
from weft.model.service import Service


class ReachableHosts:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._hosts: dict[Scope, frozenset[str]] = {}  # scopes with equal sets, as most are, share one set object
        self._covered: dict[str, tuple[Service, ...]] = {}  # claims to a host that have virtual addresses

    def of(self, scope: Scope) -> Set[str]:
        """The hosts that proxies of this scope can get on demand: those whose first call can be identified by its
        destination address. Hosts whose config is sent without a call (see `named_by`) are not included."""
        hosts = self._hosts.get(scope)
        if hosts is None:
            named = named_by(scope)
            names = self._registry.services.names()
            fresh = frozenset(host for host in names if host not in named and self._is_within(scope, host))
            hosts = self._hosts[scope] = next((known for known in self._hosts.values() if known == fresh), fresh)
        return hosts

    @property
    def scopes(self) -> Set[Scope]:
        """The scopes that are cached."""
        return self._hosts.keys()

    def moved(self, host: str) -> None:
        """Update the cached hosts of every scope, after the services that define this host have changed."""
        self._covered.pop(host, None)
        turned: dict[int, frozenset[str]] = {}  # by the old set: scopes that shared it share the new one
        for scope, hosts in tuple(self._hosts.items()):
            within = host not in named_by(scope) and self._is_within(scope, host)
            if within != (host in hosts):
                if id(hosts) not in turned:
                    turned[id(hosts)] = hosts ^ {host}
                self._hosts[scope] = turned[id(hosts)]

    def forget(self, scope: Scope | None = None) -> None:
        """Drop the cached hosts of one scope, or of all scopes (None). They are computed again when they are needed."""
        if scope is None:
            self._hosts.clear()
            self._covered.clear()
        else:
            self._hosts.pop(scope, None)

    def _is_within(self, scope: Scope, host: str) -> bool:
        covered = self._covered.get(host)
        if covered is None:  # the same for every scope, and the slowest part
            claims = self._registry.services.to(host)
            covered = tuple(each for each in claims if self._registry.virtual.covers(each))
            self._covered[host] = covered
        service = seen(self._registry, host, scope) if covered else None
        if service is not None and scope.own_listeners(service):
            return False  # it is called at another address, so its first call could not be recognized
        return any(service is each for each in covered)


def seen(registry: Registry, host: str, scope: Scope) -> Service | None:
    """The service with this host in a scope; None if none is visible. If several are visible, a Service precedes a
    ServiceEntry. Among equals the order is: private to the scope's namespace, exported to that namespace by name, a
    public one of that namespace, the oldest public one."""
    claims = [service for service in registry.services.to(host) if scope.ports(service)]
    if len(claims) < 2:
        return claims[0] if claims else None
    return min(claims, key=lambda service: _precedence(service, scope.namespace))


def _precedence(service: Service, viewer: str) -> tuple[int, Audience, bool]:
    """Sort key of a service that claims a host, for callers in the namespace `viewer`: the service with the smallest
    key is used. Services with equal keys stay in the order of the registry (`strength`)."""
    near = audience(service.export_to, owner=service.namespace, viewer=viewer)
    return strength(service)[0], near, service.namespace != viewer


def named_by(scope: Scope) -> Set[str]:
    """The hosts whose config is sent without a call: those that a Sidecar names in full, and those that the proxies
    themselves call (authorizers, JWKS servers)."""
    if scope.imports is None and not scope.asked:
        return frozenset()
    return {*(host for host, _ in scope.asked), *(entry.host for entry in scope.imports or ())}
