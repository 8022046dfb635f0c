"""When to push: what has changed is gathered here until a short quiet, so that a directory saved at once is one push.
Endpoints go out almost at once, for a few milliseconds are enough to gather a burst of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from weft.mesh.touched import Touched

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)


class Timing(msgspec.Struct, frozen=True):
    """Seconds. A push comes `quiet` after the last change, but at most `most` after the first."""

    endpoints: float = 0.002
    quiet: float = 0.01
    most: float = 0.1


class Gathering:
    """`push` is to take everything; `push_endpoints`, what is only about who answers."""

    def __init__(self, timing: Timing, push: Callable[[], None], push_endpoints: Callable[[], None]) -> None:
        self._timing, self._push, self._push_endpoints = timing, push, push_endpoints
        self._touched = Touched()
        self._endpoints: set[str] = set()
        self._first = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._endpoint_timer: asyncio.TimerHandle | None = None
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def pending(self) -> bool:
        return self._timer is not None or self._endpoint_timer is not None

    def add(self, touched: Touched) -> None:
        import asyncio  # a stage needs no loop, and those who make one wait for an answer

        loop = asyncio.get_running_loop()
        only_endpoints = touched.endpoints - touched.hosts
        if only_endpoints:
            self._endpoints |= only_endpoints
            if self._endpoint_timer is None:
                at = self._timing.endpoints
                self._endpoint_timer = loop.call_later(at, safely, self._push_endpoints)
        if not (touched.hosts or touched.inbound or touched.scopes or touched.gateways):
            return
        now = loop.time()
        if self._timer is None:
            self._first = now
        else:
            self._timer.cancel()
        self._touched |= touched
        self._timer = loop.call_at(min(now + self._timing.quiet, self._first + self._timing.most), safely, self._push)

    def take(self) -> tuple[Touched, frozenset[str]]:
        """All that was gathered; beside it, the hosts of which only endpoints are others."""
        self.close()
        touched, self._touched = self._touched, Touched()
        return touched, self._taken_endpoints()

    def take_endpoints(self) -> frozenset[str]:
        self._endpoint_timer = None
        self._wake()
        return self._taken_endpoints()

    async def done(self) -> None:
        """Returns once everything that is gathered by now was pushed; at once if it is already."""
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

    def _taken_endpoints(self) -> frozenset[str]:
        taken, self._endpoints = frozenset(self._endpoints), set()
        return taken

    def _wake(self) -> None:
        """Nobody who waits goes on before the step that calls this is done."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)


def safely(step: Callable[[], None]) -> None:
    """A push that fails is a defect to be seen, but the loop and what proxies have stay."""
    try:
        step()
    except Exception:
        log.exception("a push failed; proxies keep what they have")
