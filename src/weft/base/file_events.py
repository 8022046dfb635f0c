"""The kernel's file events of one directory: which paths may have changed since the last call.

Rule: events are recorded from the moment when the constructor returns. A caller that scans the directory after that
misses nothing.
"""

from __future__ import annotations

import threading
import time

from watchfiles import Change, watch

QUIET_MS = 10  # events are collected until none has arrived for this long,
GATHER_MS = 50  # but at most for this long: an editor's save causes events for a few milliseconds
_TURN_MS = 20  # between two polls without events; the first poll starts the watch, so it must be short


class FileEvents:
    """A watch of one directory. Only one thread at a time may use it; only `stopped` may be set by another thread."""

    def __init__(self, directory: str, stopped: threading.Event, *, recursive: bool) -> None:
        """Start the watch. Raises OSError or RuntimeError if the kernel provides no events, for example if all
        inotify watches are in use."""
        self._turns = watch(
            directory,
            watch_filter=None,
            debounce=GATHER_MS,
            step=QUIET_MS,
            stop_event=stopped,
            rust_timeout=_TURN_MS,
            yield_on_timeout=True,
            debug=False,
            raise_interrupt=False,
            force_polling=False,
            recursive=recursive,
            ignore_permission_denied=recursive,
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
