"""Where workloads are called: a port, the services whose callers come in by it, and how it is spoken to."""

from __future__ import annotations

import msgspec

from weft.model.carried import Carried
from weft.model.destination_rule import ConnectionPool, DestinationRule, effective
from weft.model.service import Protocol, Service


class InboundPort(msgspec.Struct, frozen=True):
    """A port on which a group's workloads are called, and everything that shapes how."""

    number: int
    protocol: Protocol  # as the first service says
    services: tuple[Service, ...] = ()
    service_port: int = 0  # the number that callers use, of the first service
    rule: DestinationRule | None = None
    default_endpoint: str = ""  # from a Sidecar's ingress; "": the port itself
    pool: ConnectionPool | None = None  # from a Sidecar, which beats the rule
    others: tuple[Protocol, ...] = ()  # what those after the first say, where that is something else

    @property
    def carried(self) -> Carried:
        return Carried((self.protocol, *self.others))

    @property
    def connection_pool(self) -> ConnectionPool | None:
        return self.pool or effective(self.rule, self.service_port).connection_pool
