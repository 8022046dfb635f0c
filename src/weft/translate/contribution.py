"""The part of a group's config that comes from one host. `control/push/contribute.py` builds it once for all groups
with an equal view of the host; `control/push/compiled.py` keeps the contributions of each group and joins them."""

from __future__ import annotations

import msgspec

from weft.model.names import ObjectKey
from weft.translate.built import Built


class VirtualHost(msgspec.Struct, frozen=True, eq=False):
    """One virtual host, serialized as a RouteConfiguration that contains nothing else: in protobuf, the concatenated
    bytes of such fragments are the RouteConfiguration with all of them."""

    name: str
    fragment: bytes
    sources: tuple[ObjectKey, ...] = ()
    domains: tuple[str, ...] = ()  # that it claims; in `routes.configuration` the first claim wins
    claims: frozenset[str] = frozenset()  # the same in lower case, as Envoy compares them


class Chain(msgspec.Struct, frozen=True, eq=False):
    """One filter chain of a listener that services share because they have no address of their own, serialized as a
    Listener that contains nothing else; `listeners.shared_port` joins them. If two chains match the same, the
    first wins."""

    matches: tuple[str, ...]  # server names or address ranges; (): everything on the port
    fragment: bytes
    reads_server_name: bool = False
    sources: tuple[ObjectKey, ...] = ()


EVERY_ROUTE = "*"  # a host without a service: it belongs to the route configuration of every HTTP port


class Contribution(msgspec.Struct, frozen=True, eq=False):
    clusters: tuple[Built, ...] = ()  # and the secrets that only they name
    listeners: tuple[Built, ...] = ()  # if hosts claim the same name, `control/push/compiled.py` keeps the first
    hosts: tuple[tuple[str, VirtualHost], ...] = ()  # by route configuration: "80", "HOST:PORT", EVERY_ROUTE
    chains: tuple[tuple[int, Chain], ...] = ()  # by port of the shared listener 0.0.0.0_PORT
    addressed: frozenset[str] = frozenset()  # the route configurations with a listener of their own
