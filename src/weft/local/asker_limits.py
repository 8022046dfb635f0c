"""Limits how much of the DNS server one client may use, so that a pod with very many queries does not slow down the
others. The limits are a rate of queries, a number of forwarded queries in progress, and a number of connections. A
client is identified by its address. The caller passes the time.

Rule: the memory is bounded. The client that has queried least recently is dropped first, and gets a full allowance at
its next query.
"""

from __future__ import annotations

from collections import OrderedDict

RATE = 500.0  # queries per second and client; a busy application without a cache of names sends some dozens
BURST = 1_000.0
MOST_FORWARDED = 32  # queries of one client to the machine's resolvers in progress
MOST_CONNECTIONS = 16  # TCP connections of one client
_MOST_CLIENTS = 10_000


class AskerLimits:
    def __init__(self) -> None:
        self._allowances: OrderedDict[str, tuple[float, float]] = OrderedDict()  # queries left, and at which time
        self._busy: dict[tuple[str, str], int] = {}  # by client and kind of work

    def admits(self, asker: str, now: float) -> bool:
        """Count one query of the client with the address `asker`. Returns whether the query is within the client's
        rate; if not, it must be dropped. `now`: the time, in seconds of any clock."""
        left, since = self._allowances.pop(asker, (BURST, now))
        left = min(BURST, left + (now - since) * RATE)
        admitted = left >= 1.0
        self._allowances[asker] = (left - 1.0 if admitted else left, now)
        if len(self._allowances) > _MOST_CLIENTS:
            self._allowances.popitem(last=False)
        return admitted

    def begin(self, asker: str, work: str, most: int) -> bool:
        """Count that the client `asker` begins a piece of work of the kind `work`. Returns False, and counts nothing,
        if the client has `most` pieces of this kind in progress already. Call `end` when the work has ended."""
        busy = self._busy.get((asker, work), 0)
        if busy >= most:
            return False
        self._busy[asker, work] = busy + 1
        return True

    def end(self, asker: str, work: str) -> None:
        self._busy[asker, work] -= 1
        if not self._busy[asker, work]:
            del self._busy[asker, work]
