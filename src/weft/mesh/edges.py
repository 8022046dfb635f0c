"""Cache of the edges of gateways by scope: the hosts that gateways serve and the services that they route to.
`mesh.py` owns it and clears it when a route or Gateway changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from weft.mesh.gateways import edge
from weft.mesh.virtual_services import Routings
from weft.model.edge import Edge
from weft.model.scope import Scope
from weft.model.settings import Settings
from weft.model.virtual_service import HttpRoute, VirtualService, destinations

_MOST = 256  # cache entries; when a gateway's Services change, its old entries remain unused
Delegates = Callable[[VirtualService, HttpRoute], VirtualService | None]  # the delegate of a VirtualService's route


class Edges:
    def __init__(self, routings: Routings, delegate: Delegates) -> None:
        self._routings, self._delegate = routings, delegate
        self._known: dict[Scope, Edge] = {}

    def forget(self) -> None:
        self._known.clear()

    def of(self, scope: Scope, settings: Settings) -> Edge:
        cached = self._known.get(scope)
        if cached is None:
            if len(self._known) >= _MOST:
                self.forget()
            cached = self._known[scope] = edge(
                scope.servers or (),
                lambda gateway: self._routings.bound_to(gateway, scope.namespace, settings),
                self._leads_to,
                (host for host, _ in scope.asked),
            )
        return cached

    def _leads_to(self, routing: VirtualService) -> Iterator[str]:
        for route in routing.http:
            delegate = self._delegate(routing, route)
            if delegate is not None:
                yield from (destination.host for _, destination in destinations(delegate))
        yield from (destination.host for _, destination in destinations(routing))
