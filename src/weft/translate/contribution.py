"""What one host adds to a group's config. `control/push/contribute.py` has it made once for all groups with an equal
view of the host; `control/push/compiled.py` keeps each group's, and joins them."""

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
    domains: tuple[str, ...] = ()  # what it claims; `routes.configuration` lets the first claim win
    claims: frozenset[str] = frozenset()  # the same in lower case, as Envoy compares them


class Chain(msgspec.Struct, frozen=True, eq=False):
    """One filter chain of a listener that services share because they have no address of their own, serialized as a
    Listener that holds nothing else; `listeners.shared_port` joins them. Of two chains that match the same, the first
    wins."""

    matches: tuple[str, ...]  # server names or address ranges; (): everything on the port
    fragment: bytes
    reads_server_name: bool = False
    sources: tuple[ObjectKey, ...] = ()


EVERY_ROUTE = "*"  # a host that no service owns: it belongs to every HTTP port's route configuration


class Contribution(msgspec.Struct, frozen=True, eq=False):
    clusters: tuple[Built, ...] = ()  # and the secrets that only they name
    listeners: tuple[Built, ...] = ()  # of hosts that claim one name, `control/push/compiled.py` lets the first have it
    hosts: tuple[tuple[str, VirtualHost], ...] = ()  # by route configuration: "80", "HOST:PORT", EVERY_ROUTE
    chains: tuple[tuple[int, Chain], ...] = ()  # by port of the shared listener 0.0.0.0_PORT
    addressed: frozenset[str] = frozenset()  # of the route configurations, those that need no listener but its own
