"""The kernel's file events of directories: which paths may have changed since the last call.

Rule: events are recorded from the moment when the constructor returns. A caller that scans the directories after that
misses nothing. The directories inside a directory are not watched by themselves: a recursive watch would follow every
symbolic link, even one to `/`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from watchfiles import Change, watch

QUIET_MS = 10  # events are collected until none has arrived for this long,
GATHER_MS = 50  # but at most for this long: an editor's save causes events for a few milliseconds
_TURN_MS = 20  # between two polls without events; the first poll starts the watch, so it must be short


class FileEvents:
    """A watch of directories. Only one thread at a time may use it; only `stopped` may be set by another thread."""

    def __init__(self, directories: Iterable[str], stopped: threading.Event) -> None:
        """Start the watch of `directories`. `stopped`: ends a `wait` when it is set. Raises OSError or RuntimeError if
        the kernel provides no events, for example if all inotify watches are in use, or if a directory does not
        exist."""
        self._turns = watch(
            *directories,
            watch_filter=None,
            debounce=GATHER_MS,
            step=QUIET_MS,
            stop_event=stopped,
            rust_timeout=_TURN_MS,
            yield_on_timeout=True,
            debug=False,
            raise_interrupt=False,
            force_polling=False,
            recursive=False,
        )
        self._early = next(self._turns, set())  # the generator starts the watch at its first call

    def wait(self, seconds: float) -> set[tuple[Change, str]]:
        """Wait for events, and return them as (kind of change, path). Return an empty set after `seconds` without
        events, or when `stopped` is set. Raises RuntimeError if the kernel's queue failed: then no more events
        arrive."""
        events, self._early = self._early, set()
        until = time.monotonic() + seconds
        while not events and time.monotonic() < until:
            turn = next(self._turns, None)
            if turn is None:  # stopped
                break
            events = turn
        return events

    def close(self) -> None:
        self._turns.close()
