"""A few at a time: what many want at once, and what takes memory while it lasts, is done by so many of them, and the
others wait. Rule: who takes too long is let be, and the next one comes in; nobody can keep the others out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Turnstile:
    """`patience`: seconds after which somebody who is still inside is not counted any more."""

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
            if timer.when() > loop.time():  # later, it has released the place, or is about to
                timer.cancel()
                self._places.release()
