"""What one port of a workload carries, where several services may say different things of it.

Rule: each service's callers are met as it says, as far as they can be told apart. Between proxies they can: a caller's
says what it brings. Of all others nobody knows by which service they come, and they are met as the first one says.
"""

from __future__ import annotations

import msgspec

from weft.model.service import Protocol


class Carried(msgspec.Struct, frozen=True):
    said: tuple[Protocol, ...]  # each once, the first service's first

    @property
    def first(self) -> Protocol:
        return self.said[0]

    @property
    def plain_http(self) -> bool:
        """Whether HTTP is taken for HTTP where no proxy says what comes."""
        return self.first.is_http or self.first is Protocol.UNDECLARED

    @property
    def http(self) -> bool:
        return self.plain_http or self.spoken is not None

    @property
    def bytes(self) -> bool:
        """What the first service keeps for HTTP is opened to bytes by one that declares them, and by no other."""
        return not self.first.is_http or any(not each.is_http and each is not Protocol.UNDECLARED for each in self.said)

    @property
    def detected(self) -> bool:
        """Whether the first bytes of those who come without a proxy tell what they are."""
        return self.plain_http and self.bytes

    @property
    def spoken(self) -> Protocol | None:
        """The HTTP in which the workload is spoken to; None if nobody declares one."""
        return next((each for each in self.said if each.is_http), None)

    @property
    def as_called(self) -> bool:
        """Whether there are callers whose HTTP is passed on as it comes, since their service declares none."""
        return Protocol.UNDECLARED in self.said

    @property
    def both_ways(self) -> bool:
        """Whether there are such callers, and others."""
        return self.as_called and self.spoken is not None
