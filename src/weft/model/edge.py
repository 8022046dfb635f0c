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
    """A server of a Gateway, bound to a port of one group of proxies. `gateway`: the Gateway as NAMESPACE/NAME.
    `server`: the server as the Gateway declares it. `listens`: the port on which the proxies listen: the target port of
    the Service's port or, without a Service, the server's own port. `hosts`: the server's hosts, without those that an
    older server has. `index`: the position of the server in the Gateway."""

    gateway: str
    server: GatewayServer
    listens: int
    hosts: tuple[ServedHost, ...]
    index: int = 0
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
        """Whether the server allows `routing`, a VirtualService, to define the routes of `domain`: the VirtualService
        names the server's Gateway, and a host of the server covers the domain and is open to the VirtualService's
        namespace."""
        return self.gateway in routing.gateways and any(
            each.admits(routing) and host_covers(each.host, domain) for each in self.hosts
        )

    def meets(self, routing: VirtualService, domain: str) -> bool:
        """Whether the VirtualService `routing` and the server have routes for exactly `domain`. They do if the
        VirtualService names the server's Gateway, a host of the one covers a host of the other, and `domain` is the
        narrower of these two hosts. Server `*.a.com` and VirtualService `x.a.com` give `x.a.com`, and so do server
        `x.a.com` and VirtualService `*`. A host of the server must be open to the VirtualService's namespace."""
        return self.gateway in routing.gateways and any(
            each.admits(routing) and narrower(each.host, host) == domain
            for each in self.hosts
            for host in routing.hosts
        )


class ServedName(msgspec.Struct, frozen=True):
    """A domain that a gateway serves, in one of its route configurations (`route_name`). `port`: the port that callers
    use. `gateways`: the Gateways (NAMESPACE/NAME) whose servers serve the domain. `routes`: the VirtualServices of the
    domain, the one with the highest precedence first; they are merged. `encrypted`: whether the gateway terminates TLS.
    `redirects`: whether requests are redirected to HTTPS. `misdirected`: whether the domain belongs to another server,
    so that requests for it here get 421."""

    route_name: str
    port: int
    gateways: tuple[str, ...]
    routes: tuple[VirtualService, ...] = ()
    encrypted: bool = False
    redirects: bool = False
    misdirected: bool = False


class Edge(msgspec.Struct, frozen=True):
    """Everything that one group of gateway proxies serves and routes to. `doors`: for each domain that HTTP servers
    serve, its entry in each route configuration. `streams`: for each TCP or TLS passthrough server, its
    VirtualServices. `destinations`: the hosts that some of the routes lead to, and those that the proxies themselves
    call."""

    doors: Mapping[str, tuple[ServedName, ...]]
    streams: Mapping[BoundServer, tuple[VirtualService, ...]]
    destinations: frozenset[str]

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset({*self.doors, *self.destinations})


def narrower(one: str, other: str) -> str:
    """The narrower of two hosts or wildcards; "" if no host matches both. `*.a.com` and `x.a.com` give `x.a.com`."""
    if host_covers(one, other):
        return other
    return one if host_covers(other, one) else ""
