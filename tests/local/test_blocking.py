from __future__ import annotations

import asyncio
import threading

import pytest

from weft.local.blocking import to_its_end


async def test_hands_back_what_the_work_returns_or_raises():
    assert await to_its_end(lambda: 42) == 42
    with pytest.raises(ValueError, match="no"):
        await to_its_end(lambda: (_ for _ in ()).throw(ValueError("no")))


async def test_a_cancelled_wait_still_ends_after_the_work():
    begun, go_on, done = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        go_on.wait()
        done.append(True)

    task = asyncio.ensure_future(to_its_end(work))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [True]
