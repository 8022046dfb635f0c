"""The protocols of one workload port, for which several services may declare different ones.

Rule: connections are handled as the called service declares, as far as they can be distinguished. Between proxies they
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
        """Whether TCP is accepted. If the first service declares HTTP, then only if another one declares TCP; an
        undeclared one is not enough."""
        return not self.first.is_http or any(not each.is_http and each is not Protocol.UNDECLARED for each in self.said)

    @property
    def detected(self) -> bool:
        """Whether the protocol of connections without a client proxy is detected by their first bytes."""
        return self.plain_http and self.bytes

    @property
    def spoken(self) -> Protocol | None:
        """The HTTP version used to the workload; None if no service declares one."""
        return next((each for each in self.said if each.is_http), None)

    @property
    def as_called(self) -> bool:
        """Whether some callers' HTTP version is passed on unchanged, since their service declares none."""
        return Protocol.UNDECLARED in self.said

    @property
    def both_ways(self) -> bool:
        """Whether there are both such callers (`as_called`) and callers with a declared version."""
        return self.as_called and self.spoken is not None
