"""An inbound port of workloads: its number, the services that lead to it, and its protocols."""

from __future__ import annotations

import msgspec

from weft.model.carried import Carried
from weft.model.destination_rule import ConnectionPool, DestinationRule, effective
from weft.model.gateway import ServerTls
from weft.model.service import Protocol, Service


class InboundPort(msgspec.Struct, frozen=True):
    """A port on which a group's workloads are called, and all inputs of its inbound config. `services`: the services
    that lead to the port. `protocol` and `service_port`: the protocol that the first service declares, and its port
    number, which callers use. `others`: different protocols that later services declare. `default_endpoint`: where a
    Sidecar's ingress listener sends calls; "" for the port itself. `pool`: the connection pool of a Sidecar, which
    takes precedence over that of the DestinationRule (`rule`). `tls`: the TLS of a Sidecar's ingress listener, which
    the proxy terminates where mutual TLS is disabled. `bind`: the address at which the proxy itself listens on the
    port, as a Sidecar declares; "" if calls are intercepted."""

    number: int
    protocol: Protocol
    services: tuple[Service, ...] = ()
    service_port: int = 0
    rule: DestinationRule | None = None
    default_endpoint: str = ""
    pool: ConnectionPool | None = None
    others: tuple[Protocol, ...] = ()
    tls: ServerTls | None = None
    bind: str = ""

    @property
    def carried(self) -> Carried:
        return Carried((self.protocol, *self.others))

    @property
    def connection_pool(self) -> ConnectionPool | None:
        return self.pool or effective(self.rule, self.service_port).connection_pool
