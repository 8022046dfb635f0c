from __future__ import annotations

import asyncio
import threading

import pytest

from weft.local.probe_thread import on_probe_thread


async def test_work_runs_on_another_thread_and_its_result_returns():
    async def work():
        await asyncio.sleep(0)
        return threading.get_ident()

    first, second = await asyncio.gather(on_probe_thread(work()), on_probe_thread(work()))
    assert first == second != threading.get_ident()


async def test_work_is_cancelled_with_its_caller():
    begun, cancelled = threading.Event(), threading.Event()

    async def work():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    task = asyncio.create_task(on_probe_thread(work()))
    assert await asyncio.to_thread(begun.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(cancelled.wait, 30)
