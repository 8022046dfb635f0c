"""Touched: the parts of the mesh that a change may have affected. `Mesh.apply` returns it; only these parts are
translated again."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

EVERYWHERE = "*"


class Touched(msgspec.Struct, frozen=True):
    """The parts of the mesh that a change may have affected. `control/push/due.py` finds from them which groups and
    hosts to translate again. Hosts may be wildcards.

    `hosts`: hosts whose services, routes or rules changed. `endpoints`: hosts of which only the endpoints changed.
    `inbound`: namespaces whose proxies need new inbound config. `scopes`: namespaces whose proxies may see other
    services than before; EVERYWHERE for all namespaces. `gateways`: whether gateway proxies may serve other hosts or
    ports than before. `at_gateways`: hosts of which only routes for gateways changed."""

    hosts: frozenset[str] = frozenset()
    endpoints: frozenset[str] = frozenset()
    inbound: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    gateways: bool = False
    at_gateways: frozenset[str] = frozenset()

    def __or__(self, other: Touched) -> Touched:
        return Touched(
            self.hosts | other.hosts,
            self.endpoints | other.endpoints,
            self.inbound | other.inbound,
            self.scopes | other.scopes,
            self.gateways or other.gateways,
            self.at_gateways | other.at_gateways,
        )

    def __bool__(self) -> bool:
        return bool(self.hosts or self.endpoints or self.inbound or self.scopes or self.gateways)


def joined(touches: Iterable[Touched]) -> Touched:
    """The union of all `touches`, in linear time: the first read of a cluster causes thousands of changes at once."""
    parts = tuple(touches)
    return Touched(
        frozenset().union(*(each.hosts for each in parts)),
        frozenset().union(*(each.endpoints for each in parts)),
        frozenset().union(*(each.inbound for each in parts)),
        frozenset().union(*(each.scopes for each in parts)),
        any(each.gateways for each in parts),
        frozenset().union(*(each.at_gateways for each in parts)),
    )
