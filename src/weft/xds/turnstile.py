"""Limits how many tasks do something that needs memory at the same time; the others wait. Rule: a task that takes
longer than `patience` stops counting and the next one may start; no task can block the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Turnstile:
    """`patience`: seconds after which a task that is still inside stops counting."""

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
            if timer.when() > loop.time():  # otherwise the timer has released the place, or is about to
                timer.cancel()
                self._places.release()
