"""How a pod asks its node's agent for its redirect: one line of JSON, and one in answer.

    → {"arguments": ["-p", "15001", …]}     ← {}, or {"error": "…", "hint": "…"}

What runs at the start of a pod's proxy comes in with Istio's arguments and leaves when the rules are in place. A pod
waits for it, so that this file loads next to nothing. Rule: without an answer the pod must not start.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

LONGEST = 16 * 1024  # bytes of a line: thousands of ports


class Wanted(msgspec.Struct, frozen=True):
    """`arguments` are those of Istio's init container."""

    arguments: tuple[str, ...]


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Empty: done."""

    error: str = ""
    hint: str = ""


class RedirectFailed(Exception):
    """The pod must not start: its traffic would pass by its proxy."""


async def ask(path: Path, arguments: tuple[str, ...], *, timeout: float) -> None:
    """Have the traffic of the network that this process lives in redirected. Raises RedirectFailed."""
    why = "nothing was tried"
    try:
        async with asyncio.timeout(timeout):
            while True:
                try:
                    answer = await _ask(path, arguments)
                    break
                except (OSError, ValueError) as error:
                    # The agent may be starting anew: it makes its socket again.
                    why = getattr(error, "strerror", None) or str(error)
                    await asyncio.sleep(0.1)
    except TimeoutError:
        raise RedirectFailed(
            f"the node's agent does not answer at {path} within {timeout:g} s ({why}); "
            "see that it runs on this node, and with --redirect"
        ) from None
    if answer.error:
        raise RedirectFailed(f"the node's agent says: {answer.error}" + (f" ({answer.hint})" if answer.hint else ""))


async def _ask(path: Path, arguments: tuple[str, ...]) -> Answer:
    reader, writer = await asyncio.open_unix_connection(path, limit=LONGEST)
    try:
        writer.write(msgspec.json.encode(Wanted(arguments)) + b"\n")
        await writer.drain()
        line = await reader.readline()
    finally:
        writer.close()
    if not line:
        raise ValueError("it closed the connection without a word")
    return msgspec.json.decode(line, type=Answer)
