"""Services: what can be called, under which names, addresses and ports. A Kubernetes Service and each host of a
ServiceEntry become one Service value each; other code distinguishes the two only in messages to users."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from weft.model.destination_rule import LocalitySetting
from weft.model.names import Labels, Origin


class Protocol(StrEnum):
    HTTP = "http"
    HTTP2 = "http2"
    GRPC = "grpc"
    GRPC_WEB = "grpc-web"
    HTTPS = "https"
    TLS = "tls"
    TCP = "tcp"
    MONGO = "mongo"
    MYSQL = "mysql"
    REDIS = "redis"
    UDP = "udp"
    UNDECLARED = "undeclared"  # detected per connection, by its first bytes

    @property
    def is_http(self) -> bool:
        return self in _HTTP

    @property
    def is_http2(self) -> bool:
        return self in (Protocol.HTTP2, Protocol.GRPC, Protocol.GRPC_WEB)

    @property
    def is_tcp(self) -> bool:
        """Whether the protocol is proxied as TCP: declared as TCP, or encrypted by the application itself."""
        return self in _TCP


_HTTP = frozenset({Protocol.HTTP, Protocol.HTTP2, Protocol.GRPC, Protocol.GRPC_WEB})
_TCP = frozenset({Protocol.TCP, Protocol.TLS, Protocol.HTTPS, Protocol.MONGO, Protocol.MYSQL, Protocol.REDIS})


class Resolution(StrEnum):
    STATIC = "static"  # addresses are known: endpoints are sent by EDS
    DNS = "dns"  # the proxy resolves the endpoints' names
    DNS_ROUND_ROBIN = "dns-round-robin"  # as DNS, but the endpoints are one logical host
    DYNAMIC_DNS = "dynamic-dns"  # for wildcards: the proxy resolves the name that each request or connection has
    NONE = "none"  # the caller's own destination address is used


class ServicePort(msgspec.Struct, frozen=True):
    number: int
    name: str = ""
    protocol: Protocol = Protocol.UNDECLARED
    target: int | str = 0  # where the workload listens: a number, a port name, or 0 for `number` itself


class StaticEndpoint(msgspec.Struct, frozen=True):
    """An endpoint listed in a ServiceEntry. `address`: an IP address, a host name or a Unix socket path. `ports`: pairs
    of a service port's name and the endpoint's port number for it. `weight`: its share of the calls, relative to other
    endpoints. `locality`: REGION/ZONE/SUBZONE; "" if it is not set. `serves`: the names of the service ports that it
    serves; None for all."""

    address: str
    ports: tuple[tuple[str, int], ...] = ()
    labels: Labels = ()
    weight: int = 1
    locality: str = ""
    network: str = ""
    service_account: str = ""
    serves: tuple[str, ...] | None = None


class Service(msgspec.Struct, frozen=True, cache_hash=True):
    host: str
    name: str
    namespace: str
    ports: tuple[ServicePort, ...]
    addresses: tuple[str, ...] = ()  # virtual addresses, v4 and v6; CIDR ranges are possible for a ServiceEntry
    selector: Labels | None = None  # None: endpoints are not picked by labels
    headless: bool = False
    resolution: Resolution = Resolution.STATIC
    external: bool = False  # a ServiceEntry of MESH_EXTERNAL
    static_endpoints: tuple[StaticEndpoint, ...] = ()
    publish_not_ready: bool = False
    sliced: bool = False  # a Kubernetes Service: its endpoints among Kubernetes pods come from its EndpointSlices
    subject_alt_names: tuple[str, ...] = ()
    distribution: LocalitySetting | None = None  # its trafficDistribution; None: the mesh's locality setting applies
    labels: Labels = ()
    export_to: tuple[str, ...] = ()  # (): the default, everywhere; else ".", a namespace, "*" or "~"
    created: str = ""
    origin: Origin | None = None
    merged: tuple[Origin, ...] = ()  # further ServiceEntries with the same host, which were merged into this one

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The objects that define the service, the deciding one first."""
        return (*((self.origin,) if self.origin is not None else ()), *self.merged)

    def port(self, number: int) -> ServicePort | None:
        return next((port for port in self.ports if port.number == number), None)
