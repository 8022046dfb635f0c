"""What each group has called, as far as its proxies were not told of it before: addresses that somebody waits for, and
hosts that are known to be called in some other way. Who calls one is told of it for good.

Kept longer than the groups themselves, for proxies that come back have what they had. Rule: nothing here is unbounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

import msgspec

from weft.model.group import Group
from weft.model.on_demand import Brought, Telling

MOST = 5_000  # addresses and hosts of one group; who calls more is told of everything
_WHILE_TOLD = 2  # times as many addresses are kept: calls are held until that has arrived, and are to go on, too
_MOST_GROUPS = 10_000

Address = str  # whatever the port: who calls them one after the other has called one


class CallReason(StrEnum):
    CALLED = "called"
    LOOKED_UP = "looked up"
    HAD = "had before"  # a proxy that has come back brought it along


class Call(msgspec.Struct, frozen=True):
    why: CallReason
    since: float  # of the clock on the wall


class Called:
    """Of one group."""

    def __init__(self) -> None:
        self.addresses: dict[Address, Call] = {}
        self.hosts: dict[str, Call] = {}
        self.everything = False  # it was too much to keep


class Calls:
    def __init__(self, most: int = MOST, clock: Callable[[], float] = time.time, *, everything: bool = False) -> None:
        """`everything`: where nobody knows who has called whom, and all is to be looked at."""
        self._most, self._clock, self._everything = most, clock, everything
        self.fixed = False  # whether all are told as they are now, whatever the mesh is
        self._groups: dict[Group, Called] = {}
        self._tellings: dict[Group, Telling] = {}  # of the groups that have proxies
        self._brought: dict[Group, Brought] = {}
        self._gone: dict[Group, None] = {}  # of the others that are kept, those first that are gone for longest

    # While a group has proxies

    def telling(self, group: Group) -> Telling | None:
        """How its proxies are told of services; None if it has none."""
        return self._tellings.get(group)

    def tell(self, group: Group, telling: Telling) -> None:
        self._tellings[group] = telling
        self._gone.pop(group, None)

    def leave(self, group: Group) -> None:
        """The last of its proxies is gone, and with it what it was told of without calling it."""
        self._brought.pop(group, None)
        if self._tellings.pop(group, None) is not None and group in self._groups:
            self._gone[group] = None

    def bring(self, group: Group, brought: Brought) -> None:
        if len(self._brought) < _MOST_GROUPS or group in self._brought:
            self._brought[group] = brought

    def brought(self, group: Group) -> Brought | None:
        return self._brought.get(group)

    # What it calls

    def of(self, group: Group) -> Called:
        """To be read; nothing if it has called nobody."""
        found = self._groups.get(group)
        if found is None:
            found = Called()
            found.everything = self._everything
        return found

    def groups(self) -> Mapping[Group, Called]:
        return self._groups

    def add(
        self,
        group: Group,
        addresses: Iterable[Address] = (),
        hosts: Iterable[str] = (),
        why: CallReason = CallReason.CALLED,
    ) -> bool:
        """Returns whether any of it is new. What is far too much is not kept, and so not answered either: that the
        group knows everything by then is answer enough."""
        called = self.of(group)
        call, before = Call(why, self._clock()), (len(called.addresses), len(called.hosts), called.everything)
        for kept, new, most in ((called.addresses, addresses, _WHILE_TOLD * self._most), (called.hosts, hosts, 0)):
            for each in new:
                if each in kept:
                    continue
                size = len(called.addresses) + len(called.hosts)
                if size >= self._most:
                    if why is CallReason.LOOKED_UP:  # that is only a guess
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
        """As it is now, for whoever goes on from here by himself. `fixed`: for who compares two meshes, and is to see
        how they differ, not how groups are told of that."""
        result = Calls(self._most, self._clock, everything=self._everything)
        result.fixed = fixed or self.fixed
        for group, called in self._groups.items():
            same = result._groups[group] = Called()
            same.addresses, same.hosts, same.everything = dict(called.addresses), dict(called.hosts), called.everything
        result._tellings, result._gone = dict(self._tellings), dict(self._gone)
        result._brought = dict(self._brought)
        return result
