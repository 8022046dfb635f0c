"""The protocols of one workload port, for which several services may declare different protocols.

Rule: a connection is handled as the called service declares, where the service can be determined. Between proxies it
can: the client's proxy sends the protocol (ALPN). Other connections do not identify their service and are handled as
the first service declares.
"""

from __future__ import annotations

import msgspec

from weft.model.service import Protocol


class Carried(msgspec.Struct, frozen=True):
    said: tuple[Protocol, ...]  # declared protocols without duplicates, the first service's first

    @property
    def first(self) -> Protocol:
        return self.said[0]

    @property
    def plain_http(self) -> bool:
        """Whether HTTP is handled as HTTP on connections without a client proxy."""
        return self.first.is_http or self.first is Protocol.UNDECLARED

    @property
    def http(self) -> bool:
        return self.plain_http or self.spoken is not None

    @property
    def bytes(self) -> bool:
        """Whether the port accepts TCP other than HTTP. If the first service declares HTTP, the port does so only if
        another service declares TCP; a service that declares no protocol is not enough."""
        return not self.first.is_http or any(not each.is_http and each is not Protocol.UNDECLARED for each in self.said)

    @property
    def detected(self) -> bool:
        """Whether the protocol of connections without a client proxy is detected by their first bytes."""
        return self.plain_http and self.bytes

    @property
    def spoken(self) -> Protocol | None:
        """The HTTP version used to the workload; None if no service declares HTTP."""
        return next((each for each in self.said if each.is_http), None)

    @property
    def as_called(self) -> bool:
        """Whether the HTTP version of some callers is passed on unchanged, since the service they call declares
        none."""
        return Protocol.UNDECLARED in self.said

    @property
    def both_ways(self) -> bool:
        """Whether the HTTP version of some callers is passed on unchanged (`as_called`), while other callers'
        services declare a version."""
        return self.as_called and self.spoken is not None
