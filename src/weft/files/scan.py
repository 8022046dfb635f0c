"""Lists the files of a directory that may contain objects, each with a signature (inode, size and times), by which the
caller detects which files have changed since the last scan.

Symbolic links are followed, so the swap of a ConfigMap's `..data` link is noticed. Temporary files of editors are
ignored.
"""

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
_CA = {"authority.json", "authority.lock"}  # a directory with both files contains the root of weft's own CA

Signature = tuple[int, int, int, int, int]


class DirectoryScan(msgspec.Struct, frozen=True):
    root: tuple[int, int]  # device and inode: the path may later be another directory
    files: dict[str, Signature]  # by path relative to the root
    blind: dict[str, Problem]  # directories that could not be read; objects in them stay unchanged
    passed_over: dict[str, Problem] = {}  # files that contain no objects, although their names suggest it

    def hides(self, path: str) -> bool:
        """Return whether a path that is not in `files` may still exist, because one of its parents could not be
        read."""
        return any(not above or path.startswith(f"{above}/") for above in self.blind)


def holds_objects(name: str) -> bool:
    """Return whether a file with this name may contain objects: `x.yaml`, but not `.x.yaml.swp`, `x.yaml~` or
    `.#x.yaml`."""
    return name.endswith(SUFFIXES) and not name.startswith((".", "#"))


def shown(path: str | Path) -> str:
    """Return a path for messages: as the user wrote it, but without detours such as `bad/../good`."""
    text = str(path)
    tidy = os.path.normpath(text)
    # After a symbolic link, `..` is the parent of the link's target, so the shortened path may be wrong.
    return tidy if os.path.realpath(tidy) == os.path.realpath(text) else os.path.realpath(text)


def look(root: str, shown: str) -> DirectoryScan:
    """Scan the directory `root`, which messages show as `shown`. Raises OSError if `root` does not exist or cannot
    be read."""
    status = Path(root).stat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(f"{root} is not a directory")
    seen = DirectoryScan((status.st_dev, status.st_ino), {}, {})
    os.scandir(root).close()  # an unreadable root counts as missing
    _walk(root, "", shown, seen, {seen.root}, MOST_LEVELS)
    return seen


def read(root: str, path: str, shown: str) -> Content:
    """Return the content of the file `path` below the directory `root`, which messages show as `shown`. Return None
    if the file was deleted since the scan, Unreadable if it cannot be read."""
    whole = f"{root}/{path}"
    try:
        with open(whole, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError("it is not a regular file")
            return file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        if not os.path.lexists(whole):
            return None
        return _unreadable(path, shown, "it is a dangling symbolic link", "repair or remove the link")
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
        what = "a CA is stored among the mesh's files: its key is not read as an object"
        hint = "store the CA outside of this directory: --ca DIR"
        seen.passed_over[below] = Problem(Where(file=printable(place)), what, hint, Severity.WARNING)
        ordered = [entry for entry in ordered if entry.name not in _CA]
    for entry in ordered:
        path = f"{below}/{entry.name}" if below else entry.name
        if entry.name.startswith("."):
            continue
        try:
            status = entry.stat()
        except OSError:  # a dangling link, or deleted in the meantime; `read` distinguishes them
            if holds_objects(entry.name):
                seen.files[path] = (0, 0, 0, 0, 0)
            continue
        if stat.S_ISDIR(status.st_mode):
            identity = (status.st_dev, status.st_ino)
            if identity not in visited and levels:  # symbolic links may form a cycle
                visited.add(identity)
                _walk(root, path, shown, seen, visited, levels - 1)
        elif holds_objects(entry.name):
            if len(seen.files) >= MOST_FILES:
                _blind(seen, "", shown, f"the directory has more than {MOST_FILES} files; the rest is not read")
                return
            seen.files[path] = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _blind(seen: DirectoryScan, below: str, shown: str, what: str) -> None:
    place = f"{shown}/{below}" if below else shown
    seen.blind[below] = Problem(
        Where(file=printable(place)), what, "objects that were read from it before stay in effect"
    )


def _unreadable(path: str, shown: str, reason: str, hint: str) -> Unreadable:
    where = Where(file=printable(f"{shown}/{path}"), line=1)
    what = f"the file cannot be read: {printable(reason)}; its previous objects stay in effect"
    return Unreadable(Problem(where, what, printable(hint)))


def _without_waiting(path: str, flags: int) -> int:
    """Open a file without blocking, so that a named pipe called x.yaml does not stop the loop."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def problems_of(seen: DirectoryScan | None) -> Iterable[Problem]:
    return () if seen is None else (*seen.blind.values(), *seen.passed_over.values())
