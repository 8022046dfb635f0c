"""Encoded responses and a cache of them: streams that need the same names at the same push share one `Response` and its
bytes. A stream passes a key and a function that builds the response if it is not cached."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from enum import Enum

from envoy.service.discovery.v3 import discovery_pb2

from weft.xds.table import Resource


class Dialect(Enum):
    """The xDS variant of a client: delta (changes) or state of the world (everything)."""

    DELTA = "delta"
    STATE_OF_THE_WORLD = "sotw"


class Response:
    __slots__ = ("accepted", "nonce", "payload", "removed", "resources", "type_url")

    def __init__(
        self, dialect: Dialect, type_url: str, nonce: str, resources: Sequence[Resource], removed: Sequence[str] = ()
    ) -> None:
        self.type_url = type_url
        self.nonce = nonce
        self.resources = tuple(resources)
        self.removed = tuple(removed)
        self.accepted = False  # set by the first ACK, which records the resources as accepted
        self.payload: bytes = _ENCODE[dialect](self)


# Enough for one large group's first push. A larger response is still shared while it is the newest.
CACHE_BYTES = 16 << 20


class Responses:
    """A cache of the most recent responses, limited by their total bytes."""

    def __init__(self, budget: int = CACHE_BYTES) -> None:
        self._budget = budget
        self._size = 0
        self._kept: OrderedDict[Hashable, Response] = OrderedDict()

    def get(self, key: Hashable, build: Callable[[], Response]) -> Response:
        cached = self._kept.get(key)
        if cached is not None:
            self._kept.move_to_end(key)
            return cached
        response = self._kept[key] = build()
        self._size += len(response.payload)
        while self._size > self._budget and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._size -= len(oldest.payload)
        return response


def _delta(response: Response) -> bytes:
    message = discovery_pb2.DeltaDiscoveryResponse(
        type_url=response.type_url,
        nonce=response.nonce,
        system_version_info=response.nonce,
        removed_resources=response.removed,
    )
    for resource in response.resources:
        entry = message.resources.add(name=resource.name, version=resource.version)
        entry.resource.type_url = response.type_url
        entry.resource.value = resource.body
    return bytes(message.SerializeToString())


def _state_of_the_world(response: Response) -> bytes:
    message = discovery_pb2.DiscoveryResponse(
        type_url=response.type_url, nonce=response.nonce, version_info=response.nonce
    )
    for resource in response.resources:
        message.resources.add(type_url=response.type_url, value=resource.body)
    return bytes(message.SerializeToString())


_ENCODE: dict[Dialect, Callable[[Response], bytes]] = {
    Dialect.DELTA: _delta,
    Dialect.STATE_OF_THE_WORLD: _state_of_the_world,
}
