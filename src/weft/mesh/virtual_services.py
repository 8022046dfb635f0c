"""Index of VirtualServices: which ones apply to a host, and for which scopes. `mesh.py` owns it.

Rule: an exact host takes precedence over a wildcard, and a longer wildcard over a shorter one. For one host, a
VirtualService that is private to the caller's namespace precedes one that another namespace exports to it by name,
which precedes a public one. Among equals the oldest is first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from weft.mesh.claims import Claims, patterns
from weft.model.scope import Audience, Scope, audience, exported
from weft.model.settings import Settings
from weft.model.virtual_service import MESH, VirtualService, destination_hosts


class Routings:
    def __init__(self) -> None:
        self._by_host: Claims[VirtualService] = Claims()  # by host or wildcard
        self._by_gateway: Claims[VirtualService] = Claims()
        self._by_destination: Claims[VirtualService] = Claims()
        self._by_delegate: Claims[VirtualService] = Claims()  # VirtualServices by their delegate
        self._tls_inside: Claims[VirtualService] = Claims()  # those with `tls` routes, by wildcards around their hosts

    def add(self, routing: VirtualService) -> None:
        for host in routing.hosts:
            self._by_host.add(host, routing)
        for gateway in {*routing.gateways} - {MESH}:
            self._by_gateway.add(gateway, routing)
        for host in destination_hosts(routing):
            self._by_destination.add(host, routing)
        for delegate in _delegates(routing):
            self._by_delegate.add(delegate, routing)
        for wildcard in wildcards_around(routing):
            self._tls_inside.add(wildcard, routing)

    def remove(self, routing: VirtualService) -> None:
        for host in routing.hosts:
            self._by_host.discard(host, routing)
        for gateway in {*routing.gateways} - {MESH}:
            self._by_gateway.discard(gateway, routing)
        for host in destination_hosts(routing):
            self._by_destination.discard(host, routing)
        for delegate in _delegates(routing):
            self._by_delegate.discard(delegate, routing)
        for wildcard in wildcards_around(routing):
            self._tls_inside.discard(wildcard, routing)

    def of(self, host: str, scope: Scope, settings: Settings) -> tuple[VirtualService, ...]:
        """The VirtualServices that apply to a host for sidecars of this scope, the deciding one first."""
        for pattern in patterns(host):
            routings = [
                routing
                for routing in self._by_host.to(pattern)
                if _is_for_sidecars(routing, scope, settings)
                and (routing.attached or scope.sees_routes(routing.namespace, host))
            ]
            if routings:
                return _by_precedence(routings, scope.namespace, settings)
        return ()

    def tls_hosts_inside(self, wildcard: str) -> set[str]:
        """The hosts and narrower wildcards inside a wildcard for which a VirtualService has `tls` routes."""
        return {
            host
            for routing in self._tls_inside.to(wildcard)
            for host in routing.hosts
            if wildcard in patterns(host)[1:]
        }

    def bound_to(self, gateway: str, viewer: str, settings: Settings) -> tuple[VirtualService, ...]:
        """The VirtualServices bound to a Gateway and exported to the namespace `viewer`, the one with the highest
        precedence first. `gateway`: NAMESPACE/NAME."""
        routings = [routing for routing in self._by_gateway.to(gateway) if is_exported(routing, viewer, settings)]
        return _by_precedence(routings, viewer, settings)

    def lead_to(self, host: str) -> bool:
        """Whether routes of another host may send a sidecar's call to this host."""
        return any(
            routing.hosts != (host,) and (MESH in routing.gateways or not routing.hosts)
            for routing in self._by_destination.to(host)
        )

    def leading_to(self, host: str, scope: Scope, settings: Settings) -> Iterator[VirtualService]:
        """The VirtualServices visible to sidecars of this scope that route to this host, directly or by a delegate."""
        for routing in self._by_destination.to(host):
            for root in (routing,) if routing.hosts else self._handing_over_to(routing):
                if (
                    _is_for_sidecars(root, scope, settings)
                    and (root.attached or any(scope.may_see_routes(root.namespace, each) for each in root.hosts))
                    and (root is routing or is_exported(routing, root.namespace, settings))
                ):
                    yield root

    def hosts(self) -> Iterable[str]:
        """Every host or wildcard of a VirtualService."""
        return self._by_host.names()

    def changed_by(self, routing: VirtualService) -> frozenset[str]:
        """The hosts whose routes change when the VirtualService `routing` changes: its own hosts. If it has no hosts,
        it is a delegate, and the hosts are those of the VirtualServices that delegate to it."""
        if routing.hosts:
            return frozenset(routing.hosts)
        return frozenset(host for root in self._handing_over_to(routing) for host in root.hosts)

    def _handing_over_to(self, routing: VirtualService) -> Sequence[VirtualService]:
        return self._by_delegate.to(_key(routing.namespace, routing.name))


def is_exported(routing: VirtualService, viewer: str, settings: Settings) -> bool:
    return exported(routing.export_to or settings.virtual_service_export_to, owner=routing.namespace, viewer=viewer)


def audience_of(routing: VirtualService, viewer: str, settings: Settings) -> Audience:
    return audience(routing.export_to or settings.virtual_service_export_to, owner=routing.namespace, viewer=viewer)


def _by_precedence(routings: list[VirtualService], viewer: str, settings: Settings) -> tuple[VirtualService, ...]:
    """Return the VirtualServices `routings` in the order of their precedence for callers in the namespace `viewer`:
    VirtualServices before attached Gateway API routes, and private before exported by name before public. Equal ones
    keep their order; `routings` are sorted by `strength`."""
    if len(routings) > 1:
        routings.sort(key=lambda routing: (routing.attached, audience_of(routing, viewer, settings)))
    return tuple(routings)


def _is_for_sidecars(routing: VirtualService, scope: Scope, settings: Settings) -> bool:
    return MESH in routing.gateways and is_exported(routing, scope.namespace, settings)


def wildcards_around(routing: VirtualService) -> set[str]:
    """The wildcards that cover a host for which `routing` has `tls` routes. The service of such a wildcard accepts the
    connections to this host, so it needs these routes."""
    return {wildcard for host in routing.hosts for wildcard in patterns(host)[1:]} if routing.tls else set()


def _delegates(routing: VirtualService) -> set[str]:
    return {_key(route.delegate.namespace, route.delegate.name) for route in routing.http if route.delegate}


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"
