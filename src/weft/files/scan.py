"""Lists the files of a directory that may hold objects, and which have changed since the last scan.
Symbolic links are followed, so a ConfigMap's swapped `..data` shows; scratch files of editors do not count."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

import msgspec

from weft.base.problem import Problem, Severity, Where
from weft.files.directory import Content, Unreadable, printable
from weft.files.documents import MOST_BYTES

SUFFIXES = (".yaml", ".yml", ".json")
MOST_FILES = 20_000
MOST_LEVELS = 32
_CA = {"authority.json", "authority.lock"}  # both in one directory: what weft's own CA is kept in

Signature = tuple[int, int, int, int, int]


class DirectoryScan(msgspec.Struct, frozen=True):
    root: tuple[int, int]  # device and inode: the name may refer to another directory later
    files: dict[str, Signature]  # by path relative to the root
    blind: dict[str, Problem]  # directories that could not be read; objects below them stay as they were
    passed_over: dict[str, Problem] = {}  # files that hold something else, although their names suggest objects

    def hides(self, path: str) -> bool:
        """Whether a path that was not listed may still exist."""
        return any(not above or path.startswith(f"{above}/") for above in self.blind)


def holds_objects(name: str) -> bool:
    """By its name alone: `x.yaml`, but not `.x.yaml.swp`, `x.yaml~` or `.#x.yaml`."""
    return name.endswith(SUFFIXES) and not name.startswith((".", "#"))


def shown(path: str | Path) -> str:
    """A path for messages: as the user wrote it, but without detours such as `bad/../good`."""
    written = str(path)
    tidy = os.path.normpath(written)
    # `..` after a link leads elsewhere than it seems.
    return tidy if os.path.realpath(tidy) == os.path.realpath(written) else os.path.realpath(written)


def look(root: str, shown: str) -> DirectoryScan:
    """Raises OSError if the root itself does not exist."""
    found = Path(root).stat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{root} is not a directory")
    seen = DirectoryScan((found.st_dev, found.st_ino), {}, {})
    os.scandir(root).close()  # an unreadable root is as good as none
    _walk(root, "", shown, seen, {seen.root}, MOST_LEVELS)
    return seen


def read(root: str, path: str, shown: str) -> Content:
    """A file's content; None if it was deleted since the scan."""
    whole = f"{root}/{path}"
    try:
        with open(whole, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError("it is not a regular file")
            return file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        if not os.path.lexists(whole):
            return None
        return _unreadable(path, shown, "it is a link to nowhere", "repair or remove the link")
    except OSError as error:
        return _unreadable(path, shown, error.strerror or str(error), f"try: ls -lL {shown}/{path}")


def _walk(root: str, below: str, shown: str, seen: DirectoryScan, visited: set[tuple[int, int]], levels: int) -> None:
    try:
        with os.scandir(f"{root}/{below}" if below else root) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        _blind(seen, below, shown, f"the directory cannot be read: {error.strerror or error}")
        return
    if {entry.name for entry in ordered} >= _CA:
        place = f"{shown}/{below}" if below else shown
        what = "a CA is kept here, among the mesh's files: its key is not read as a resource"
        hint = "keep it elsewhere: --ca DIR, a directory outside of this one"
        seen.passed_over[below] = Problem(Where(file=printable(place)), what, hint, Severity.WARNING)
        ordered = [entry for entry in ordered if entry.name not in _CA]
    for entry in ordered:
        path = f"{below}/{entry.name}" if below else entry.name
        if entry.name.startswith("."):
            continue
        try:
            found = entry.stat()
        except OSError:  # a link to nowhere, or gone since; `read` tells which
            if holds_objects(entry.name):
                seen.files[path] = (0, 0, 0, 0, 0)
            continue
        if stat.S_ISDIR(found.st_mode):
            identity = (found.st_dev, found.st_ino)
            if identity not in visited and levels:  # links may lead in circles
                visited.add(identity)
                _walk(root, path, shown, seen, visited, levels - 1)
        elif holds_objects(entry.name):
            if len(seen.files) >= MOST_FILES:
                _blind(seen, "", shown, f"more than {MOST_FILES} files; the rest is not read")
                return
            seen.files[path] = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _blind(seen: DirectoryScan, below: str, shown: str, what: str) -> None:
    place = f"{shown}/{below}" if below else shown
    seen.blind[below] = Problem(Where(file=printable(place)), what, "what was read from it before stays in effect")


def _unreadable(path: str, shown: str, reason: str, hint: str) -> Unreadable:
    where = Where(file=printable(f"{shown}/{path}"), line=1)
    what = f"the file cannot be read: {printable(reason)}; what it held before stays in effect"
    return Unreadable(Problem(where, what, printable(hint)))


def _without_waiting(path: str, flags: int) -> int:
    """A pipe named x.yaml must not stop the loop."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def problems_of(seen: DirectoryScan | None) -> Iterable[Problem]:
    return () if seen is None else (*seen.blind.values(), *seen.passed_over.values())
