"""An inbound port of workloads: its number, the services that lead to it, and its protocols."""

from __future__ import annotations

import msgspec

from weft.model.carried import Carried
from weft.model.destination_rule import ConnectionPool, DestinationRule, effective
from weft.model.gateway import ServerTls
from weft.model.service import Protocol, Service


class InboundPort(msgspec.Struct, frozen=True):
    """A port on which a group's workloads are called, and all inputs of its inbound config."""

    number: int
    protocol: Protocol  # as the first service declares
    services: tuple[Service, ...] = ()
    service_port: int = 0  # the first service's port, which callers use
    rule: DestinationRule | None = None
    default_endpoint: str = ""  # from a Sidecar's ingress; "": the port itself
    pool: ConnectionPool | None = None  # from a Sidecar; takes precedence over the DestinationRule
    others: tuple[Protocol, ...] = ()  # different protocols that later services declare
    tls: ServerTls | None = None  # from a Sidecar's ingress: TLS that the proxy terminates where mutual TLS is disabled

    @property
    def carried(self) -> Carried:
        return Carried((self.protocol, *self.others))

    @property
    def connection_pool(self) -> ConnectionPool | None:
        return self.pool or effective(self.rule, self.service_port).connection_pool
