"""Limits how many tasks do memory-intensive work at the same time; further tasks wait. Rule: a task that takes longer
than `patience` seconds no longer counts and the next task may start, so that no task can block the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Turnstile:
    """A semaphore of `places` places. A task that keeps its place longer than `patience` seconds no longer counts."""

    def __init__(self, places: int, patience: float) -> None:
        self._places = asyncio.Semaphore(places)
        self._patience = patience

    @asynccontextmanager
    async def inside(self) -> AsyncGenerator[None, None]:
        loop = asyncio.get_running_loop()
        await self._places.acquire()
        timer = loop.call_later(self._patience, self._places.release)
        try:
            yield
        finally:
            if timer.when() > loop.time():  # otherwise the timer has released the place or is about to
                timer.cancel()
                self._places.release()
