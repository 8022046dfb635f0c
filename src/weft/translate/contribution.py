"""What one service adds to a group's config. `control/push.py` keeps one per host and group, and joins them."""

from __future__ import annotations

import msgspec

from weft.model.names import ObjectKey
from weft.translate.built import Built


class VirtualHost(msgspec.Struct, frozen=True, eq=False):
    """One virtual host, serialized as a RouteConfiguration that holds nothing else: by protobuf's rules, joining the
    bytes of such fragments gives the RouteConfiguration with all of them."""

    name: str
    fragment: bytes
    sources: tuple[ObjectKey, ...] = ()


EVERY_ROUTE = "*"  # a host that no service owns: it belongs to every HTTP port's route configuration


class Contribution(msgspec.Struct, frozen=True, eq=False):
    clusters: tuple[Built, ...] = ()
    listeners: tuple[Built, ...] = ()
    hosts: tuple[
        tuple[str, VirtualHost], ...
    ] = ()  # by name of the route configuration: "80", "HOST:PORT", EVERY_ROUTE
