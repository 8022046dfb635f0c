"""Decides when a push runs: shortly after the last change, so that many files saved together make one push. Endpoints
are pushed after a few milliseconds, which are enough to gather a burst. Held calls are released in the next turn of
the event loop.

`push.py` owns the schedule, adds what waits and provides the functions to run; this module calls them at the right
time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from weft.control.push.gather import Waiting

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)

Run = Callable[[], None]


class PushTiming(msgspec.Struct, frozen=True):
    """Delays in seconds. A push runs `quiet` after the last change, but at most `most` after the first. A push of
    endpoints runs `endpoints` after the first change."""

    endpoints: float = 0.002
    quiet: float = 0.01
    most: float = 0.1


class Schedule:
    """Timers of the next pushes. `push`, `push_endpoints` and `answer_calls` are functions of the owner: the first
    pushes everything that waits, the second only endpoints, and the third releases held calls."""

    def __init__(self, timing: PushTiming, push: Run, push_endpoints: Run, answer_calls: Run) -> None:
        self._timing = timing
        self._push, self._push_endpoints, self._answer_calls = push, push_endpoints, answer_calls
        self._first = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._endpoint_timer: asyncio.TimerHandle | None = None
        self._turn: asyncio.Handle | None = None
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def pending(self) -> bool:
        """Whether changes or endpoints wait for a push."""
        return self._timer is not None or self._endpoint_timer is not None

    def add(self, waiting: Waiting) -> None:
        import asyncio  # not at the top: `weft.inspect.stage` needs no event loop, and must start fast

        loop = asyncio.get_running_loop()
        if waiting.endpoints and self._endpoint_timer is None:
            self._endpoint_timer = loop.call_later(self._timing.endpoints, safely, self._push_endpoints)
        if not waiting.changes:
            return
        now = loop.time()
        if self._timer is None:
            self._first = now
        else:
            self._timer.cancel()
        self._timer = loop.call_at(min(now + self._timing.quiet, self._first + self._timing.most), safely, self._push)

    def add_calls(self) -> None:
        import asyncio

        if self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(safely, self._answer_calls)

    def begin_endpoints(self) -> None:
        """Clear the timer of the next push of endpoints. Must be called when such a push begins."""
        self._endpoint_timer = None
        self._wake()

    def begin_calls(self) -> None:
        """Allow the next release of held calls to be scheduled. Must be called when a release begins."""
        self._turn = None

    def begin(self) -> None:
        """Cancel the timers of the next pushes, of changes and of endpoints. Must be called when a push of all changes
        and endpoints begins. The release of held calls is scheduled separately (`begin_calls`)."""
        self.close()

    async def done(self) -> None:
        """Wait until everything that has changed so far was pushed."""
        import asyncio

        while self.pending:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting

    def close(self) -> None:
        for timer in (self._timer, self._endpoint_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._endpoint_timer = None
        self._wake()

    def _wake(self) -> None:
        """Resume the coroutines in `done`. They continue in a later turn of the loop, when the push that calls this has
        ended."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


def safely(run: Run) -> None:
    """Run a push and log it if it fails. A failure is a defect, but the loop continues and proxies keep their
    config."""
    try:
        run()
    except Exception:
        log.exception("a push failed; proxies keep their config")
