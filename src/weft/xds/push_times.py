"""Records the time of each push number, to compute how long a proxy has been stale. Rule: the memory is bounded, so the
time of an old push is less exact."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable

KEPT = 1_024
EXACT = 0.1  # seconds: pushes closer together than this share one recorded time


class PushTimes:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.last = 0
        self._clock = clock
        self._numbers: list[int] = []
        self._times: list[float] = []

    def note(self, number: int) -> None:
        """Record the current time as the time of push `number`."""
        now = self._clock()
        self.last = number
        if self._times and now - self._times[-1] < EXACT:
            return
        self._numbers.append(number)
        self._times.append(now)
        if len(self._times) > KEPT:
            # Keep every second entry of the older half, so that a busy mesh still has times from hours ago.
            half = KEPT // 2
            self._numbers[:half] = self._numbers[:half:2]
            self._times[:half] = self._times[:half:2]

    def at(self, number: int) -> float:
        """Return the time of push `number`, or of the recorded push before it; the current time for a future push."""
        index = bisect_right(self._numbers, number) - 1
        return self._times[max(index, 0)] if self._times and number <= self.last else self._clock()
