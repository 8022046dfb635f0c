"""Blocking work beside the event loop, carried to its end even when whoever waits for it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


async def to_its_end(work: Callable[[], _Result]) -> _Result:
    """Run `work` on a thread. When cancelled, wait for it all the same: what it makes must not appear after the
    cleaning up."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
