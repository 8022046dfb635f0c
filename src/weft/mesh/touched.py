"""What a change to the mesh may have changed. `Mesh.apply` returns it; only what it names is translated again."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

EVERYWHERE = "*"


class Touched(msgspec.Struct, frozen=True):
    """What a change may have changed, in the terms of `control/push/due.py`. Hosts may be wildcards."""

    hosts: frozenset[str] = frozenset()  # services, routes or rules under these names
    endpoints: frozenset[str] = frozenset()  # only the endpoints under these names
    inbound: frozenset[str] = frozenset()  # inbound config of proxies of these namespaces
    scopes: frozenset[str] = frozenset()  # what proxies of these namespaces may see; EVERYWHERE for all
    gateways: bool = False  # what gateway proxies serve
    at_gateways: frozenset[str] = frozenset()  # routes under these names that are only for gateways

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
    """The union of all, in linear time: reading a cluster brings thousands at once."""
    held = tuple(touches)
    return Touched(
        frozenset().union(*(each.hosts for each in held)),
        frozenset().union(*(each.endpoints for each in held)),
        frozenset().union(*(each.inbound for each in held)),
        frozenset().union(*(each.scopes for each in held)),
        any(each.gateways for each in held),
        frozenset().union(*(each.at_gateways for each in held)),
    )
