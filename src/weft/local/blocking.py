"""Runs blocking work on a thread beside the event loop, and waits for its end even if the waiting task is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


async def to_its_end(work: Callable[[], _Result]) -> _Result:
    """Run `work` on a thread and return its result. If the caller is cancelled, wait until `work` has ended before
    raising CancelledError: otherwise `work` could create files or namespaces after the cleanup has run."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
