"""A directory of YAML, watched: the first batch is everything there is, each later one what a save changed. The
kernel's events only say when to look again; what is true is what a look finds, so missed, doubled and misleading
events do no harm. Rule: nothing that happens to the directory ends the loop, and no object is deleted while the
directory does not exist."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
from watchfiles import Change as Event

from weft.api.document import Change
from weft.base.file_events import FileEvents
from weft.base.problem import Problem, Where
from weft.files import scan
from weft.files.directory import Content, Directory, DocumentReader
from weft.model.names import ObjectKey

# A missing object is looked for once more after SETTLE, which is longer than any save takes.
SETTLE = 0.3
TICK = 0.5  # seconds between checks that the directory is still the same one
SWEEP = 5.0  # seconds between scans without an event: symbolic links out of the directory have no events


class FileBatch(msgspec.Struct, frozen=True):
    changes: tuple[Change, ...] = ()
    problems: tuple[Problem, ...] = ()  # all that is wrong with the files now


class DirectoryMissing(Exception):
    """There is nothing to watch."""

    def __init__(self, directory: str) -> None:
        super().__init__(f"there is no directory {directory} (hint: mkdir -p {directory}, or name another one)")
        self.directory = directory


async def watch(
    directory: str | Path, *, reader: DocumentReader | None = None, settle: float = SETTLE
) -> AsyncGenerator[FileBatch, None]:
    """Batches, for ever. Close the iterator to stop. `reader` takes each batch in before the next one is read. Raises
    DirectoryMissing only at the start."""
    if not Path(directory).is_dir():
        raise DirectoryMissing(str(directory))
    watcher = _Watcher(directory, reader, settle)
    try:
        batch = await asyncio.to_thread(watcher.look)
        yield batch
        while True:
            due = await asyncio.to_thread(watcher.wait)
            if not due:
                continue
            last, batch = batch, await asyncio.to_thread(watcher.look)
            if batch.changes or batch.problems != last.problems:
                yield batch
    finally:
        watcher.stop()


class _Watcher:
    """Used by one thread at a time; only `stop` may come from another."""

    def __init__(self, directory: str | Path, reader: DocumentReader | None, settle: float) -> None:
        self._root = str(Path(directory).absolute())
        self._shown = scan.shown(directory)
        self._settle = settle
        self._directory = Directory(self._root, self._shown, reader)
        self._seen: scan.DirectoryScan | None = None
        self._away: Problem | None = None
        self._named: set[str] = set()  # files that events named: read again even if they look the same
        self._leaving: dict[ObjectKey, float] = {}  # since when
        self._events: FileEvents | None = None
        self._listening: tuple[int, int] | None = None  # to which directory
        self._stopped = threading.Event()
        self._swept = time.monotonic()

    def stop(self) -> None:
        self._stopped.set()

    def wait(self) -> bool:
        """Until something may have changed, an object's time is up, or a tick; returns whether to look."""
        now = time.monotonic()
        until = min([now + TICK, *(since + self._settle for since in self._leaving.values())])
        if self._events is None:
            self._stopped.wait(max(0.001, until - now))
            return True
        try:
            events = self._events.wait(until - now)
        except RuntimeError:  # the kernel's queue broke; start anew
            self._unlisten()
            return True
        if events:
            return self._worth_a_look(events)
        now = time.monotonic()
        overdue = any(since + self._settle <= now for since in self._leaving.values())
        return overdue or now - self._swept >= SWEEP or self._moved()

    def look(self) -> FileBatch:
        """Take in what the directory holds now."""
        before, now = self._seen, time.monotonic()
        named, self._named = self._named, set()
        self._swept = now
        try:
            if self._events is None or self._moved():
                self._listen()  # before looking, so that nothing falls between
            seen = scan.look(self._root, self._shown)
        except OSError as error:
            return self._gone(error)
        self._away, self._seen = None, seen
        contents: dict[str, Content] = {}
        known = before.files if before else {}
        for path, signature in seen.files.items():
            if known.get(path) != signature or path in named:
                contents[path] = scan.read(self._root, path, self._shown)
        for path in self._directory.paths:
            if path not in seen.files and not seen.hides(path):
                contents[path] = None
        changes = self._directory.apply(contents)
        return self._batch([*changes, *self._settled(now)])

    def _settled(self, now: float) -> list[Change]:
        self._leaving = {key: self._leaving.get(key, now) for key in self._directory.leaving}
        ready = [key for key, since in self._leaving.items() if since + self._settle <= now]
        for key in ready:
            del self._leaving[key]
        return self._directory.settle(ready)

    def _gone(self, error: OSError) -> FileBatch:
        self._unlisten()
        self._leaving = {}  # their time starts anew when the directory is back
        self._away = Problem(
            Where(file=self._shown),
            f"the directory is gone ({error.strerror or error}); everything stays as it was",
            "put it back and it is read again",
        )
        return self._batch([])

    def _batch(self, changes: list[Change]) -> FileBatch:
        away = [self._away] if self._away else []
        return FileBatch(tuple(changes), (*away, *scan.problems_of(self._seen), *self._directory.problems()))

    def _moved(self) -> bool:
        """Whether the path is now another directory than the watched one, or none."""
        try:
            found = Path(self._root).stat()
        except OSError:
            return True
        return self._listening != (found.st_dev, found.st_ino)

    def _listen(self) -> None:
        """Watch the directory that the path names now."""
        self._unlisten()
        found = Path(self._root).stat()
        self._listening = (found.st_dev, found.st_ino)
        try:
            self._events = FileEvents(self._root, self._stopped, recursive=True)
        except FileNotFoundError:
            raise
        except (OSError, RuntimeError):  # out of inotify watches: look at every tick instead
            pass

    def _unlisten(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None

    def _worth_a_look(self, events: set[tuple[Event, str]]) -> bool:
        """Whether an event is about YAML; other files in the directory are ignored. Records the files it names."""
        worth = False
        for kind, path in events:
            name = path.rpartition("/")[2]
            if scan.holds_objects(name):
                self._named.add(path.removeprefix(f"{self._root}/"))
                worth = True
            elif name.startswith("..") or path == self._root:
                worth = True
            elif not name.startswith(".") and not name.endswith("~"):
                worth = worth or kind == Event.deleted or (kind == Event.added and Path(path).is_dir())
        return worth
