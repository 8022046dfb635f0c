"""Delays between retries: growing, capped, jittered, and reset by a success."""

from __future__ import annotations

import random


class Backoff:
    def __init__(self, first: float = 0.1, most: float = 30.0, factor: float = 2.0, jitter: float = 0.2) -> None:
        self._first, self._most, self._factor, self._jitter = first, most, factor, jitter
        self.failures = 0

    def next(self) -> float:
        """Count one more failure, and return the seconds to wait before the next try."""
        delay = min(self._most, self._first * self._factor**self.failures)
        self.failures += 1
        return delay * (1 + random.uniform(-self._jitter, self._jitter))  # noqa: S311 - spreading load, not a secret

    def reset(self) -> None:
        self.failures = 0
