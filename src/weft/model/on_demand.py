"""How the proxies of a group are told of services: of all that they may see, or of each when it is first called
(`weft.dev/on-demand`), and why. Pure values; `reach.py` counts, `calls.py` remembers, `control/push/demand.py` decides.

Rule: nothing is taken from proxies that live. What they were told of before they were on demand they keep, and by which
listeners their calls go they keep, too.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

FEW = 100  # services that may be called from somewhere: of so many every proxy there is told at once


class OnDemand(StrEnum):
    """As it is written."""

    AUTO = "auto"  # where more than a few services can be called
    ON = "true"
    OFF = "false"


class Judgement(msgspec.Struct, frozen=True):
    """Whether those who look from somewhere are told of services when they call them."""

    setting: OnDemand
    services: int  # whose first call from there could be held
    few: int = FEW

    @property
    def on(self) -> bool:
        return self.setting is OnDemand.ON or (self.setting is OnDemand.AUTO and self.services > self.few)

    def __str__(self) -> str:
        if self.setting is not OnDemand.AUTO:
            return f"weft.dev/on-demand: {self.setting}"
        counted = {0: "no service", 1: "1 service"}.get(self.services, f"{self.services:,} services")
        if self.on:
            counted = f"{counted} could be called from here, more than {self.few:,}"
        else:
            counted = f"{counted} could wait here for a first call, not more than {self.few:,}"
        return f"{counted}; weft.dev/on-demand: auto"


class Telling(msgspec.Struct, frozen=True, cache_hash=True):
    """How one group is told. All of it is part of what its config depends on."""

    every: bool = True  # of all that it may see, called or not
    held: bool = False  # HTTP services have listeners at their own addresses, since calls to others are held, or were
    shared: bool = False  # if so: those of whole ports stay all the same, for they may have connections
    ranges: tuple[str, ...] = ()  # in which calls are held to addresses that it was not told of
    kept: frozenset[str] = frozenset()  # hosts that it was told of when it became on demand, or others were held
    too_many: bool = False  # it has called too many, and is told of everything for good


EVERYTHING = Telling()


def retold(before: Telling | None, judged: Judgement, ranges: tuple[str, ...], told: frozenset[str]) -> Telling:
    """How a group is told from now on; None: it has just come, and has nothing. `told`: what it has been told of, and
    would not be again."""
    if before is None:
        return Telling(every=False, held=True, ranges=ranges) if judged.on else EVERYTHING
    if not judged.on:
        return before if before.every else msgspec.structs.replace(before, every=True, kept=frozenset())
    if not before.every:
        if before.ranges == ranges and told <= before.kept:
            return before
        # Calls may be held now to whom nothing told apart before, so that all were told of him.
        return msgspec.structs.replace(before, ranges=ranges, kept=before.kept | told)
    return Telling(every=False, held=True, shared=before.shared or not before.held, ranges=ranges, kept=told)


class Brought(StrEnum):
    """What proxies show that come back to a control plane which does not know them."""

    HOLDING = "holding"  # they wait for calls that they hold, or did
    HOSTS = "hosts"  # they have hosts, and have held no call: they were told of everything


def with_brought(telling: Telling, brought: Brought | None, ranges: tuple[str, ...]) -> Telling:
    """So that they lose no listener by which they may have connections."""
    if brought is Brought.HOLDING and not telling.held and not telling.too_many:
        return msgspec.structs.replace(telling, held=True, shared=True, ranges=ranges)
    if brought is Brought.HOSTS and telling.held and not telling.shared:
        return msgspec.structs.replace(telling, shared=True)
    return telling


def overflowing(before: Telling | None) -> Telling:
    """Of a group that calls too many: it is told of everything, and nothing is held, so that what its proxies ask for
    has an end."""
    return msgspec.structs.replace(before or EVERYTHING, every=True, ranges=(), kept=frozenset(), too_many=True)
