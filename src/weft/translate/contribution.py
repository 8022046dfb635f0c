"""The part of a group's config that comes from one host. `control/push/contribute.py` builds a contribution once for
all groups with an equal view of the host; `control/push/compiled.py` keeps the contributions of each group and joins
them."""

from __future__ import annotations

import msgspec

from weft.model.names import ObjectKey
from weft.translate.built import Built


class VirtualHost(msgspec.Struct, frozen=True, eq=False):
    """One virtual host. `fragment`: the virtual host, serialized as a RouteConfiguration that contains nothing else; in
    protobuf, the concatenated bytes of such fragments are a RouteConfiguration with all virtual hosts. `sources`: the
    objects that it is made from. `domains`: the domains that it would like to have; if two virtual hosts of a route
    configuration have the same domain, the first keeps it (`routes.configuration`). `claims`: `domains` in lower case,
    as Envoy compares them."""

    name: str
    fragment: bytes
    sources: tuple[ObjectKey, ...] = ()
    domains: tuple[str, ...] = ()  # the domains that it claims; in `routes.configuration` the first claim wins
    claims: frozenset[str] = frozenset()  # the domains in lower case, as Envoy compares them


class Chain(msgspec.Struct, frozen=True, eq=False):
    """One filter chain of a listener that several services share because they have no address of their own. `fragment`:
    the chain, serialized as a Listener that contains nothing else; `listeners.shared_port` joins such chains.
    `matches`: server names or address ranges; () matches every connection to the port. If two chains have the same
    match, the first wins. `reads_server_name`: the listener needs the TLS inspector for this chain. `sources`: the
    objects that the chain is made from."""

    matches: tuple[str, ...]  # server names or address ranges; (): everything on the port
    fragment: bytes
    reads_server_name: bool = False
    sources: tuple[ObjectKey, ...] = ()


EVERY_ROUTE = "*"  # key of a host without a service: it is added to the route configuration of every HTTP port


class Contribution(msgspec.Struct, frozen=True, eq=False):
    clusters: tuple[Built, ...] = ()  # the clusters, and the SDS secrets that only they name
    listeners: tuple[Built, ...] = ()  # if hosts claim the same name, `control/push/compiled.py` keeps the first
    hosts: tuple[tuple[str, VirtualHost], ...] = ()  # with its route configuration: "80", "HOST:PORT", EVERY_ROUTE
    chains: tuple[tuple[int, Chain], ...] = ()  # each with the port of its shared listener 0.0.0.0_PORT
    addressed: frozenset[str] = frozenset()  # route configurations with listeners on own addresses
