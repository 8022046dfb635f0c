"""The kernel's events of one directory: which paths may have changed since the last call.

Rule: events count from the moment that the constructor returns. A caller that looks at the directory after that misses
nothing.
"""

from __future__ import annotations

import threading
import time

from watchfiles import Change, watch

QUIET_MS = 10  # events are gathered until none has come for so long,
GATHER_MS = 50  # but no longer than this: an editor's save is a burst of a few milliseconds
_TURN_MS = 20  # between turns in which nothing came; the first one begins the watch, so it must be short


class FileEvents:
    """Used by one thread at a time; only `stopped` may be set by another."""

    def __init__(self, directory: str, stopped: threading.Event, *, recursive: bool) -> None:
        """Raises OSError or RuntimeError where the kernel gives no events, such as when all watches are taken."""
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
        self._early = next(self._turns, set())  # a generator begins with its first turn

    def wait(self, seconds: float) -> set[tuple[Change, str]]:
        """Events, as soon as there are some; empty if none came, or at the end. Raises RuntimeError if the kernel's
        queue broke: then nothing more comes."""
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
