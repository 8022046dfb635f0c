"""Watches a directory of YAML files. The first batch contains all objects; each later batch contains what a save has
changed.

The kernel's events only decide when the directory is scanned again. The changes are computed from the scan, so missed,
repeated and misleading events do no harm. Rule: nothing that happens to the directory ends the loop, and no object is
deleted while the directory does not exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import msgspec
from watchfiles import Change as Event

from weft.api.document import Change
from weft.base.file_events import FileEvents
from weft.base.problem import Problem, Where
from weft.files import ignore, scan
from weft.files.directory import Content, Directory, DocumentReader
from weft.model.names import ObjectKey

# Seconds after which an object that is in no file is deleted, if it is still missing; longer than any save takes.
SETTLE = 0.3
TICK = 0.5  # seconds between checks whether the path is still the same directory
SWEEP = 5.0  # seconds between scans without an event: files behind symbolic links cause no events


class FileBatch(msgspec.Struct, frozen=True):
    changes: tuple[Change, ...] = ()
    problems: tuple[Problem, ...] = ()  # everything that is wrong with the files now
    kept: frozenset[ObjectKey] = frozenset()  # objects of which the files have no readable version any more


class DirectoryMissing(Exception):
    """The directory to watch does not exist."""

    def __init__(self, directory: str) -> None:
        super().__init__(
            f"directory {directory} does not exist (hint: mkdir -p {directory}, or pass another directory)"
        )
        self.directory = directory


async def watch(
    directory: str | Path, *, reader: DocumentReader | None = None, settle: float = SETTLE
) -> AsyncGenerator[FileBatch, None]:
    """Yield batches of changes until the iterator is closed. The caller must apply each batch to the component that
    `reader` belongs to before it requests the next batch. `settle`: seconds for which an object must be in no file
    before it is deleted. Raises DirectoryMissing, only at the start."""
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
            if batch.changes or (batch.problems, batch.kept) != (last.problems, last.kept):
                yield batch
    finally:
        watcher.stop()


class _Watcher:
    """The blocking part of `watch`. Only one thread at a time may use it, except that any thread may call `stop`."""

    def __init__(self, directory: str | Path, reader: DocumentReader | None, settle: float) -> None:
        self._root = str(Path(directory).absolute())
        self._shown = scan.shown(directory)
        self._settle = settle
        self._directory = Directory(self._root, self._shown, reader)
        self._seen: scan.DirectoryScan | None = None
        self._away: Problem | None = None
        self._named: set[str] = set()  # files that events named: read again even if size and times are equal
        self._leaving: dict[ObjectKey, float] = {}  # since when each object is in no file
        self._events: FileEvents | None = None
        self._listening: Mapping[str, tuple[int, int]] = {}  # the watched directories, with device and inode
        self._rebuilt = False  # a directory was created or deleted: its number may be that of an older one
        self._stopped = threading.Event()
        self._swept = time.monotonic()

    def stop(self) -> None:
        self._stopped.set()

    def wait(self) -> bool:
        """Wait until files may have changed, an object must be deleted, or TICK has passed. Return whether a scan is
        needed."""
        now = time.monotonic()
        until = min([now + TICK, *(since + self._settle for since in self._leaving.values())])
        if self._events is None:
            self._stopped.wait(max(0.001, until - now))
            return True
        try:
            events = self._events.wait(until - now)
        except RuntimeError:  # the kernel's event queue failed; the next scan starts a new watch
            self._unlisten()
            return True
        if events:
            return self._worth_a_look(events)
        now = time.monotonic()
        overdue = any(since + self._settle <= now for since in self._leaving.values())
        return overdue or now - self._swept >= SWEEP or self._moved() or self._is_outdated()

    def look(self) -> FileBatch:
        """Scan the directory, and return the changes since the last scan and all current problems."""
        before, now = self._seen, time.monotonic()
        named, self._named = self._named, set()
        self._swept = now
        try:
            self._seen = seen = scan.look(self._root, self._shown)
            if self._is_outdated():
                self._listen(seen.directories)
                # What has changed since the first scan caused no event.
                self._seen = seen = scan.look(self._root, self._shown)
        except OSError as error:
            return self._gone(error)
        self._away = None
        contents: dict[str, Content] = {}
        files_before = before.files if before else {}
        for path, signature in seen.files.items():
            if files_before.get(path) != signature or path in named:
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
        self._leaving = {}  # the time starts again when the directory exists again
        self._away = Problem(
            Where(file=self._shown),
            f"the directory cannot be read any more ({error.strerror or error}); all objects stay in effect",
            "restore the directory, and weft reads it again",
        )
        return self._batch([])

    def _batch(self, changes: list[Change]) -> FileBatch:
        away = [self._away] if self._away else []
        problems = (*away, *scan.problems_of(self._seen), *self._directory.problems())
        return FileBatch(tuple(changes), problems, self._directory.kept)

    def _moved(self) -> bool:
        """Return whether the directory's path no longer leads to the watched directory: another one is there now, or
        none."""
        try:
            status = Path(self._root).stat()
        except OSError:
            return True
        return self._listening.get(self._root) != (status.st_dev, status.st_ino)

    def _is_outdated(self) -> bool:
        """Return whether the watched directories are not those of the last scan."""
        directories = self._seen.directories if self._seen is not None else {}
        return self._events is None or self._rebuilt or directories != self._listening

    def _listen(self, directories: Mapping[str, tuple[int, int]]) -> None:
        """Start a new watch of these directories."""
        self._unlisten()
        self._listening, self._rebuilt = dict(directories), False
        # Out of inotify watches, or a directory was deleted since the scan: scan at every tick instead.
        with contextlib.suppress(OSError, RuntimeError):
            self._events = FileEvents(directories, self._stopped)

    def _unlisten(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None

    def _worth_a_look(self, events: set[tuple[Event, str]]) -> bool:
        """Return whether one of `events` may concern a YAML file. Such an event names a YAML file, `.weftignore`, the
        watched directory itself, a directory that was added or swapped (`..data`), or any deleted path, which may have
        been a directory. Also record the YAML files that the events name."""
        worth = False
        for kind, path in events:
            name = path.rpartition("/")[2]
            if scan.holds_objects(name):
                self._named.add(path.removeprefix(f"{self._root}/"))
                worth = True
            elif name.startswith("..") or path == self._root or name == ignore.NAME:
                worth = True
            elif not name.startswith(".") and not name.endswith("~"):
                directory = kind == Event.deleted or (kind == Event.added and Path(path).is_dir())
                self._rebuilt = self._rebuilt or directory
                worth = worth or directory
        return worth
