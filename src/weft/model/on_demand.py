"""On-demand config (`weft.dev/on-demand`): whether the proxies of a group get all services that they may see, or
each service at its first call, and why. Pure values; `mesh/reach.py` counts services, `mesh/calls.py` records
calls, `control/push/demand.py` decides.

Rule: running proxies lose nothing. When a group becomes on-demand, its proxies keep the services that they have and
the listeners that their calls use.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

FEW = 100  # a proxy that can reach at most this many services gets all of them at once


class OnDemand(StrEnum):
    """The values of the annotation `weft.dev/on-demand`."""

    AUTO = "auto"  # on demand if more than `FEW` services can be called
    ON = "true"
    OFF = "false"


class Judgement(msgspec.Struct, frozen=True):
    """Whether the proxies of a scope (those that may see the same services) get services on demand (`on`). `str()`
    of the value gives the reason. `services`: the number of reachable services whose first call could be held. `few`:
    with the setting `auto`, services are sent on demand only if there are more than this number."""

    setting: OnDemand
    services: int
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
            counted = f"{counted} could be sent on demand, not more than {self.few:,}"
        return f"{counted}; weft.dev/on-demand: auto"


class Telling(msgspec.Struct, frozen=True, cache_hash=True):
    """How one group of proxies gets services: all at once, or each on demand at its first call. Every field is an
    input of the group's config.

    `every`: the group gets all services that it may see, called or not. `held`: calls to addresses without config are
    held, or were held before. In that case each HTTP service has a listener at its own addresses, instead of sharing
    one for the whole port. `shared`: with `held`, the listeners of whole ports (`0.0.0.0_PORT`) are kept as well,
    because they may have connections. `ranges`: the CIDRs in which calls to addresses without config are held. `kept`:
    the hosts that the group gets without calling them, because it had them when it became on-demand or when `ranges`
    changed. `too_many`: the group has called too many hosts, so from then on it gets every service (`every`) and no
    call is held.
    """

    every: bool = True
    held: bool = False
    shared: bool = False
    ranges: tuple[str, ...] = ()
    kept: frozenset[str] = frozenset()
    too_many: bool = False


EVERYTHING = Telling()


def retold(before: Telling | None, judged: Judgement, ranges: tuple[str, ...], told: frozenset[str]) -> Telling:
    """The next state of a group after the new judgement `judged`. `before`: the current state; None for a new group,
    which has no config. `ranges`: the CIDRs in which calls are held. `told`: hosts whose config the group has now and
    must keep, although it has not called them."""
    if before is None:
        return Telling(every=False, held=True, ranges=ranges) if judged.on else EVERYTHING
    if not judged.on:
        return before if before.every else msgspec.structs.replace(before, every=True, kept=frozenset())
    if not before.every:
        if before.ranges == ranges and told <= before.kept:
            return before
        # With new ranges, calls can be held for services whose addresses were outside the ranges before; their config
        # was always sent.
        return msgspec.structs.replace(before, ranges=ranges, kept=before.kept | told)
    return Telling(every=False, held=True, shared=before.shared or not before.held, ranges=ranges, kept=told)


class Brought(StrEnum):
    """What a control plane concludes, from the subscriptions of reconnecting proxies, about the config that they got
    from an earlier control plane or another replica."""

    HOLDING = "holding"  # the proxies hold calls, or did
    WHOLE_PORTS = "whole ports"  # the proxies have listeners `0.0.0.0_PORT`: they had every service once


def with_brought(telling: Telling, brought: Brought | None, ranges: tuple[str, ...]) -> Telling:
    """The state `telling` of a group, adjusted so that reconnecting proxies lose no listener that may have connections.
    `brought`: what is known about their earlier config; None if nothing. `ranges`: the CIDRs in which calls are
    held."""
    if brought is Brought.HOLDING and not telling.held and not telling.too_many:
        return msgspec.structs.replace(telling, held=True, shared=True, ranges=ranges)
    if brought is Brought.WHOLE_PORTS and telling.held and not telling.shared:
        return msgspec.structs.replace(telling, shared=True)
    return telling


def overflowing(before: Telling | None) -> Telling:
    """The next state of a group that has called too many hosts (`before`: its state so far; None for a new group): it
    gets every service and its calls are not held, so its proxies request nothing on demand any more."""
    return msgspec.structs.replace(before or EVERYTHING, every=True, ranges=(), kept=frozenset(), too_many=True)
