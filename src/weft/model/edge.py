"""What one group of gateway proxies serves: the servers that it listens for, the names that it answers for, and the
VirtualServices behind each name. Frozen values; `mesh/gateways.py` computes them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from weft.model.gateway import GatewayServer
from weft.model.names import Origin, host_covers
from weft.model.virtual_service import VirtualService

ANY = "*"
AUTHORITIES = "-cacert"  # Istio's suffix: Secret NAME-cacert holds the CA certificates that Secret NAME's server trusts


class ServedHost(msgspec.Struct, frozen=True):
    namespace: str  # whose routes it is for; ANY for everybody's
    host: str

    def admits(self, routing: VirtualService) -> bool:
        return self.namespace in (ANY, routing.namespace)


class BoundServer(msgspec.Struct, frozen=True, cache_hash=True):
    """A server of a Gateway as one group of proxies has it."""

    gateway: str  # NAMESPACE/NAME
    server: GatewayServer
    listens: int  # on this port, which its Service's port leads to
    hosts: tuple[ServedHost, ...]  # that are its own
    index: int = 0  # among the Gateway's servers
    origin: Origin | None = None

    @property
    def door(self) -> tuple[str, int]:
        """Servers with the same door share a listener."""
        return self.server.bind, self.listens

    @property
    def route_name(self) -> str:
        """Of its route configuration: servers of plain HTTP at one door share it, inside TLS each has its own."""
        if not self.server.encrypted:
            return f"http.{self.listens}{f'.{self.server.bind}' if self.server.bind else ''}"
        namespace, _, name = self.gateway.partition("/")
        return f"https.{self.server.port.number}.{self.server.port.name}.{name}.{namespace}"

    def admits(self, routing: VirtualService, domain: str) -> bool:
        """Whether it lets a VirtualService speak for a name."""
        return self.gateway in routing.gateways and any(
            each.admits(routing) and host_covers(each.host, domain) for each in self.hosts
        )

    def meets(self, routing: VirtualService, domain: str) -> bool:
        """Whether a name is the very one that it and a VirtualService both have."""
        return self.gateway in routing.gateways and any(
            each.admits(routing) and narrower(each.host, host) == domain
            for each in self.hosts
            for host in routing.hosts
        )


class ServedName(msgspec.Struct, frozen=True):
    """Where a name is answered for: in one route configuration."""

    route_name: str
    port: int  # as callers know it
    gateways: tuple[str, ...]
    routes: tuple[VirtualService, ...] = ()  # the oldest first; they are merged
    encrypted: bool = False  # callers come by TLS that ends here
    redirects: bool = False  # to HTTPS
    misdirected: bool = False  # the name is another server's: whoever asks for it here has come in by the wrong one


class Edge(msgspec.Struct, frozen=True):
    """All that one group of gateway proxies answers for and leads to."""

    doors: Mapping[str, tuple[ServedName, ...]]  # by name, of HTTP
    streams: Mapping[BoundServer, tuple[VirtualService, ...]]  # of everything else
    destinations: frozenset[str]  # hosts that some of their routes lead to

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset({*self.doors, *self.destinations})


def narrower(one: str, other: str) -> str:
    """The narrower of two hosts or wildcards; "" if no host is under both."""
    if host_covers(one, other):
        return other
    return one if host_covers(other, one) else ""
