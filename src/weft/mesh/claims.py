"""Index of claims: for each host, wildcard or namespace, the objects that define it.

Several objects may define (claim) the same name. The best claim comes first (`strength`), so that all code that
reads the index chooses the same object.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

from weft.model.destination_rule import DestinationRule
from weft.model.service import Service
from weft.model.sidecar import Sidecar
from weft.model.virtual_service import VirtualService

Claim = TypeVar("Claim", Service, VirtualService, DestinationRule, Sidecar)


class Claims(Generic[Claim]):
    def __init__(self) -> None:
        self._by_name: dict[str, list[Claim]] = {}

    def __iter__(self) -> Iterator[Claim]:
        for claims in self._by_name.values():
            yield from claims

    def add(self, name: str, value: Claim) -> None:
        claims = self._by_name.setdefault(name, [])
        claims.append(value)
        claims.sort(key=strength)

    def discard(self, name: str, value: Claim) -> None:
        claims = self._by_name[name]
        claims.remove(value)
        if not claims:
            del self._by_name[name]

    def to(self, name: str) -> Sequence[Claim]:
        return self._by_name.get(name, ())

    def covering(self, host: str) -> list[Claim]:
        """Claims to the host itself, then to wildcards from the narrowest to the widest."""
        return [claim for pattern in patterns(host) for claim in self.to(pattern)]

    def names(self) -> KeysView[str]:
        return self._by_name.keys()


@lru_cache(maxsize=65_536)
def patterns(host: str) -> tuple[str, ...]:
    """The host itself, then wider and wider wildcards: `*.shop.svc.cluster.local`, `*.svc.cluster.local`, … `*`."""
    labels = host.removeprefix("*.").split(".")
    return (host, *(f"*.{'.'.join(labels[start:])}" for start in range(1, len(labels))), "*")


def strength(value: Service | VirtualService | DestinationRule | Sidecar) -> tuple[int, str, str, str]:
    """Sort key of a claim, the best claim first: Services before ServiceEntries, VirtualServices before attached
    Gateway API routes, then the oldest, then by name. A claim of unknown age counts as the newest."""
    kind = 1 if value.origin is not None and value.origin.key.kind == "ServiceEntry" else 0
    if isinstance(value, VirtualService) and value.attached:  # consumer routes before producer routes
        kind = 1 if value.export_to == (".",) else 2
    return (kind, value.created or "9999", value.namespace, value.name)
