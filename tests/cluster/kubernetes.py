"""What tests of the control plane on Kubernetes share."""

from __future__ import annotations

import asyncio
import itertools

_numbers = itertools.count(1)


def unique(word):
    return f"{word}-{next(_numbers)}"


async def until(condition, timeout=20.0):
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.02)
