"""What one group of gateway proxies serves: its Gateway servers, the hosts that it serves, and the VirtualServices of
each host. Frozen values; `mesh/gateways.py` computes them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from weft.model.gateway import GatewayServer
from weft.model.names import Origin, host_covers
from weft.model.virtual_service import VirtualService

ANY = "*"
AUTHORITIES = "-cacert"  # Istio's suffix: Secret NAME-cacert holds the CA certificates that Secret NAME's server trusts


class ServedHost(msgspec.Struct, frozen=True):
    namespace: str  # whose VirtualServices it allows; ANY for all namespaces
    host: str

    def admits(self, routing: VirtualService) -> bool:
        return self.namespace in (ANY, routing.namespace)


class BoundServer(msgspec.Struct, frozen=True, cache_hash=True):
    """A server of a Gateway, bound to a port of one group of proxies."""

    gateway: str  # NAMESPACE/NAME
    server: GatewayServer
    listens: int  # the port it listens on: the target port of its Service's port
    hosts: tuple[ServedHost, ...]  # without the hosts that an older server has
    index: int = 0  # among the Gateway's servers
    origin: Origin | None = None

    @property
    def door(self) -> tuple[str, int]:
        """The address and port that the server listens on. Servers with the same address and port share a listener."""
        return self.server.bind, self.listens

    @property
    def route_name(self) -> str:
        """The name of the server's route configuration: plain HTTP servers at one address and port share it; each
        TLS server has its own."""
        if not self.server.encrypted:
            return f"http.{self.listens}{f'.{self.server.bind}' if self.server.bind else ''}"
        namespace, _, name = self.gateway.partition("/")
        return f"https.{self.server.port.number}.{self.server.port.name}.{name}.{namespace}"

    def admits(self, routing: VirtualService, domain: str) -> bool:
        """Whether the server allows a VirtualService to define the routes of a domain."""
        return self.gateway in routing.gateways and any(
            each.admits(routing) and host_covers(each.host, domain) for each in self.hosts
        )

    def meets(self, routing: VirtualService, domain: str) -> bool:
        """Whether `domain` is the narrower of a host of the server and a host of the VirtualService, where one of
        the two hosts covers the other."""
        return self.gateway in routing.gateways and any(
            each.admits(routing) and narrower(each.host, host) == domain
            for each in self.hosts
            for host in routing.hosts
        )


class ServedName(msgspec.Struct, frozen=True):
    """A domain that a gateway serves, in one of its route configurations."""

    route_name: str
    port: int  # the port that callers use
    gateways: tuple[str, ...]
    routes: tuple[VirtualService, ...] = ()  # the oldest first; they are merged
    encrypted: bool = False  # the gateway terminates TLS
    redirects: bool = False  # redirects to HTTPS
    misdirected: bool = False  # the name belongs to another server: requests for it here get 421


class Edge(msgspec.Struct, frozen=True):
    """Everything that one group of gateway proxies serves and routes to."""

    doors: Mapping[str, tuple[ServedName, ...]]  # HTTP, by the name of the route configuration
    streams: Mapping[BoundServer, tuple[VirtualService, ...]]  # TCP and TLS passthrough
    destinations: frozenset[str]  # hosts that some of the routes lead to

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset({*self.doors, *self.destinations})


def narrower(one: str, other: str) -> str:
    """The narrower of two hosts or wildcards; "" if no host matches both."""
    if host_covers(one, other):
        return other
    return one if host_covers(other, one) else ""
