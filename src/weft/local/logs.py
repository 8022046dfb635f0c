"""The output of pods: one size-limited, rotated file per stream, written by the engine and read by `weft logs`.

Rule: the pipe of a process is always read, even if the file cannot be written. A full disk or a flood of output loses
lines, but never blocks the app or the engine. When the log can be written again, it states how many lines were lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

MOST_BYTES = 2 * 1024 * 1024  # per file; with the rotated file twice as much. /run is memory on most machines
MOST_LINE = 16 * 1024
MOST_RATE = 4 * 1024 * 1024  # bytes per second; reading more would block the engine's other work
_FOLLOWER_LINES = 1000  # a reader that is further behind than this loses lines


class LogFile:
    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self.path = path
        self._previous = path.with_name(f"{path.name}.1")
        self._most_bytes = most_bytes
        self._size = 0
        self._lost = 0
        self._followers: set[asyncio.Queue[str | None]] = set()
        with contextlib.suppress(OSError):
            self._size = path.stat().st_size

    def write(self, *lines: str) -> None:
        """Append lines, or count them as lost if the file cannot be written. Never raises, never blocks."""
        for follower in self._followers:
            for line in lines:
                if follower.full():
                    follower.get_nowait()
                follower.put_nowait(line)
        lost = (
            f"weft: {self._lost} lines were lost: the output was too fast, or the log could not be written\n"
            if self._lost
            else ""
        )
        data = (lost + "".join(f"{line}\n" for line in lines)).encode(errors="replace")
        try:
            if self._size + len(data) > self._most_bytes:
                self._rotate()
            with self.path.open("ab", buffering=0) as file:
                size = file.write(data)
            self._size += size
            self._lost = 0 if size == len(data) else len(lines)
        except OSError:
            self._lost += len(lines)

    def tail(self, lines: int | None = None) -> list[str]:
        """Return the last `lines` lines, oldest first; all that are stored if `lines` is None."""
        kept: deque[str] = deque(maxlen=lines)
        for path in (self._previous, self.path):
            with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace", newline="\n") as file:
                kept.extend(line.rstrip("\n") for line in file)
        return list(kept)

    async def follow(self) -> AsyncIterator[str]:
        """Yield every line that is written from now on, until the log is closed."""
        queue: asyncio.Queue[str | None] = asyncio.Queue(_FOLLOWER_LINES)
        self._followers.add(queue)
        try:
            while (line := await queue.get()) is not None:
                yield line
        finally:
            self._followers.discard(queue)

    def close(self) -> None:
        for follower in self._followers:
            if follower.full():
                follower.get_nowait()
            follower.put_nowait(None)

    async def pump(self, stream: asyncio.StreamReader) -> None:
        """Read a process's output to its end and write it to the log."""
        pending = b""
        second, used = 0, 0
        while chunk := await stream.read(64 * 1024):
            if int(time.monotonic()) != second:
                second, used = int(time.monotonic()), 0
            used += len(chunk)
            if used > MOST_RATE:
                self._lost += chunk.count(b"\n")
                pending = b""
                continue
            *lines, pending = (pending + chunk).split(b"\n")
            if len(pending) > MOST_LINE:
                lines.append(pending)
                pending = b""
            if lines:
                self.write(*(line[:MOST_LINE].decode(errors="replace").rstrip("\r") for line in lines))
        if pending:
            self.write(pending.decode(errors="replace"))

    def _rotate(self) -> None:
        self._size = 0
        with contextlib.suppress(FileNotFoundError):
            self.path.replace(self._previous)


class PodLog:
    """A pod's two logs: the output of the app and the output of its Envoy."""

    def __init__(self, directory: Path) -> None:
        self.app = LogFile(directory / "app.log")
        self.proxy = LogFile(directory / "proxy.log")

    def close(self) -> None:
        self.app.close()
        self.proxy.close()
