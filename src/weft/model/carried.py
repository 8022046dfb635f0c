"""The protocols of one workload port. Several services may lead to the port and declare different protocols for it.

Rule: a connection is handled by the protocol that the called service declares, if the called service is known. On a
connection between two proxies it is known, because the client's proxy sends the protocol by ALPN. Other connections
do not identify the called service and are handled by the protocol that the first service declares.
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
        """Whether a request on a connection that does not come from a client's proxy is proxied as HTTP, not as TCP.
        Yes if the first service declares HTTP or no protocol."""
        return self.first.is_http or self.first is Protocol.UNDECLARED

    @property
    def http(self) -> bool:
        return self.plain_http or self.spoken is not None

    @property
    def bytes(self) -> bool:
        """Whether the port accepts TCP connections that are not HTTP. No if the first service declares HTTP and no
        other service declares TCP (a service that declares no protocol does not count as TCP); else yes."""
        return not self.first.is_http or any(not each.is_http and each is not Protocol.UNDECLARED for each in self.said)

    @property
    def detected(self) -> bool:
        """Whether the first bytes decide between HTTP and TCP on connections that do not come from a client's proxy."""
        return self.plain_http and self.bytes

    @property
    def spoken(self) -> Protocol | None:
        """The HTTP version in which the proxy calls the workload; None if no service declares HTTP."""
        return next((each for each in self.said if each.is_http), None)

    @property
    def as_called(self) -> bool:
        """Whether one of the services declares no protocol. Requests to that service reach the workload in the HTTP
        version that the caller uses."""
        return Protocol.UNDECLARED in self.said

    @property
    def both_ways(self) -> bool:
        """Whether one service declares no protocol (`as_called`) and another declares an HTTP version, so that the
        proxy calls the workload in both ways: in the HTTP version of the caller, and in the declared one."""
        return self.as_called and self.spoken is not None
