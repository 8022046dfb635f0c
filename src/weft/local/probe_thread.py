"""The thread on which probes connect to apps, with an event loop of its own. While pods start, the engine's event loop
is busy: on it, an app's answer would be read late, and the probe would time out although the app had answered in time.

Rule: nothing of the mesh is read or changed on this thread; the result of a probe is used on the engine's event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

_Result = TypeVar("_Result")


async def on_probe_thread(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run `work` on the thread and return its result. If the caller is cancelled, `work` is cancelled, too."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _loop()))


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="weft-probes", daemon=True).start()
    return loop
