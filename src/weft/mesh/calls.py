"""Records the on-demand calls of each group: addresses that its proxies called before they had config for them, and
hosts that its pods looked up in DNS, or that its proxies had config for before they reconnected. A group that has
called a host keeps the config of that host.

Records are kept after a group's proxies have disconnected, because proxies that reconnect still have their earlier
config. Rule: every record here is bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from itertools import islice

import msgspec

from weft.model.group import Group
from weft.model.on_demand import Brought, Telling

MOST = 5_000  # addresses and hosts of one group; a group that calls more gets every service
_WHILE_TOLD = 2  # times MOST addresses are recorded: calls held until the full config arrives must continue, too
_MOST_GROUPS = 10_000

Address = str  # without the port: calls to several ports of one address count once


class CallReason(StrEnum):
    CALLED = "called"
    LOOKED_UP = "looked up"
    HAD = "had before"  # a reconnected proxy subscribed to it


class Call(msgspec.Struct, frozen=True):
    why: CallReason
    since: float  # wall-clock time of the first call


class Called:
    """The addresses and hosts that one group has called, each with the first call to it. `everything`: the group has
    called more than the limit, and gets every service."""

    def __init__(self) -> None:
        self.addresses: dict[Address, Call] = {}
        self.hosts: dict[str, Call] = {}
        self.everything = False  # the limit was exceeded: the group gets every service


class Calls:
    def __init__(self, most: int = MOST, clock: Callable[[], float] = time.time, *, everything: bool = False) -> None:
        """`most`: the number of addresses and hosts that a group may call before it gets every service. `clock`:
        returns the Unix time of a call. `everything`: every group gets every service from the start; for the analysis
        of a mesh without recorded calls."""
        self._most, self._clock, self._everything = most, clock, everything
        self.fixed = False  # groups keep their mode (on demand or not), however the mesh changes
        self._groups: dict[Group, Called] = {}
        self._tellings: dict[Group, Telling] = {}  # for groups that have proxies
        self._brought: dict[Group, Brought] = {}
        self._listeners: dict[Group, frozenset[str]] = {}  # listeners of proxies whose group has not joined yet
        self._gone: dict[Group, None] = {}  # recorded groups without proxies, the one longest without first

    # While a group has proxies

    def telling(self, group: Group) -> Telling | None:
        """How the proxies of a group get services: all at once, or each on demand. None if the group has no connected
        proxies."""
        return self._tellings.get(group)

    def tell(self, group: Group, telling: Telling) -> None:
        self._tellings[group] = telling
        self._gone.pop(group, None)

    def leave(self, group: Group) -> None:
        """Drop the state of a group whose last proxy has disconnected, except the record of what the group called."""
        self._brought.pop(group, None)
        self._listeners.pop(group, None)
        if self._tellings.pop(group, None) is not None and group in self._groups:
            self._gone[group] = None

    def bring(self, group: Group, brought: Brought) -> None:
        if len(self._brought) < _MOST_GROUPS or group in self._brought:
            self._brought[group] = brought

    def brought(self, group: Group) -> Brought | None:
        return self._brought.get(group)

    def bring_listeners(self, group: Group, listeners: frozenset[str]) -> None:
        """Record the names of listeners that reconnecting proxies of a group still have, so that the proxies keep them.
        The record is used and dropped when the group joins."""
        known = self._listeners.get(group, frozenset())
        if len(known) < self._most and (known or len(self._listeners) < _MOST_GROUPS):
            self._listeners[group] = known.union(islice(listeners, self._most))

    def take_listeners(self, group: Group) -> frozenset[str]:
        return self._listeners.pop(group, frozenset())

    # What a group calls

    def of(self, group: Group) -> Called:
        """The addresses and hosts that a group has called; empty if it has called nothing. The caller must not change
        the result."""
        called = self._groups.get(group)
        if called is None:
            called = Called()
            called.everything = self._everything
        return called

    def groups(self) -> Mapping[Group, Called]:
        return self._groups

    def add(
        self,
        group: Group,
        addresses: Iterable[Address] = (),
        hosts: Iterable[str] = (),
        why: CallReason = CallReason.CALLED,
    ) -> bool:
        """Record that a group calls these addresses and hosts. `why`: how this is known; a DNS lookup is only a guess,
        and is not recorded beyond the limit. Returns whether the record changed: an address or host is new, or the
        group has reached its limit and gets every service from now on. Calls far beyond the limit are not recorded, and
        held calls to such addresses get no reply: by then the group gets every service anyway."""
        called = self.of(group)
        call, before = Call(why, self._clock()), (len(called.addresses), len(called.hosts), called.everything)
        for kept, new, most in ((called.addresses, addresses, _WHILE_TOLD * self._most), (called.hosts, hosts, 0)):
            for each in new:
                if each in kept:
                    continue
                size = len(called.addresses) + len(called.hosts)
                if size >= self._most:
                    if why is CallReason.LOOKED_UP:  # a DNS lookup is only a guess
                        break
                    called.everything = True
                    if size >= most:
                        break
                kept[each] = call
        if called.addresses or called.hosts:
            self._groups[group] = called
            if group not in self._tellings:
                self._gone.pop(group, None)
                self._gone[group] = None
        if len(self._groups) > _MOST_GROUPS and self._gone:
            oldest = next(iter(self._gone))
            del self._gone[oldest]
            self._groups.pop(oldest, None)
        return before != (len(called.addresses), len(called.hosts), called.everything)

    def copy(self, *, fixed: bool = False) -> Calls:
        """An independent copy of the current state. `fixed`: groups keep their mode, on demand or not. This is for
        comparing two meshes: the comparison then shows how the meshes differ, and not a switch of the mode."""
        result = Calls(self._most, self._clock, everything=self._everything)
        result.fixed = fixed or self.fixed
        for group, called in self._groups.items():
            same = result._groups[group] = Called()
            same.addresses, same.hosts, same.everything = dict(called.addresses), dict(called.hosts), called.everything
        result._tellings, result._gone = dict(self._tellings), dict(self._gone)
        result._brought, result._listeners = dict(self._brought), dict(self._listeners)
        return result
