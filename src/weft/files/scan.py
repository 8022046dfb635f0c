"""Lists the files of a directory that may contain objects, each with a signature (inode, size and times), by which the
caller detects which files have changed since the last scan.

Symbolic links are followed, so the swap of a ConfigMap's `..data` link is noticed, except for links to a directory
that contains the mesh's own directory, such as `/`. Hidden files, temporary files of editors, directories of installed
packages, and what `.weftignore` lists are not read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

import msgspec

from weft.base.problem import Problem, Severity, Where
from weft.files import ignore
from weft.files.directory import Content, Unreadable, printable
from weft.files.documents import MOST_BYTES

SUFFIXES = (".yaml", ".yml", ".json")
MOST_FILES = 20_000
MOST_DIRECTORIES = 5_000
MOST_LEVELS = 32
_PACKAGES = ("node_modules", "__pycache__")
_ENVIRONMENT = "pyvenv.cfg"  # a directory with this file is a Python environment
_KERNEL = ("/proc", "/sys", "/dev")
_CA = {"authority.json", "authority.lock"}  # a directory with both files contains the root of weft's own CA

Signature = tuple[int, int, int, int, int]


class DirectoryScan(msgspec.Struct, frozen=True):
    root: tuple[int, int]  # device and inode: the path may later be another directory
    files: dict[str, Signature]  # by path relative to the root
    directories: dict[str, tuple[int, int]]  # that were read, as absolute paths, with device and inode
    blind: dict[str, Problem]  # directories that could not be read; objects in them stay unchanged
    passed_over: dict[str, Problem] = {}  # files and links that are not read, although their names suggest it

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
    identity = (status.st_dev, status.st_ino)
    seen = DirectoryScan(identity, {}, {root: identity}, {})
    os.scandir(root).close()  # an unreadable root counts as missing
    _Walk(root, shown, seen).walk("", MOST_LEVELS)
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


class _Walk:
    """One scan of a directory. Each directory is visited once, since symbolic links may form a cycle."""

    def __init__(self, root: str, shown: str, seen: DirectoryScan) -> None:
        self._root, self._shown, self._seen = root, shown, seen
        self._visited = {seen.root}
        self._ignored = self._ignore_list()

    def walk(self, below: str, levels: int) -> None:
        try:
            with os.scandir(f"{self._root}/{below}" if below else self._root) as entries:
                ordered = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self._blind(below, f"the directory cannot be read: {error.strerror or error}")
            return
        names = {entry.name for entry in ordered}
        if _ENVIRONMENT in names:
            return
        if names >= _CA:
            what = "a CA is stored among the mesh's files: its key is not read as an object"
            self._pass_over(below, what, "store the CA outside of this directory: --ca DIR")
            ordered = [entry for entry in ordered if entry.name not in _CA]
        for entry in ordered:
            path = f"{below}/{entry.name}" if below else entry.name
            if not entry.name.startswith(".") and not self._visit(entry, path, levels):
                return

    def _visit(self, entry: os.DirEntry[str], path: str, levels: int) -> bool:
        """Record the file `entry`, or walk it if it is a directory. `path`: its path below the scanned directory.
        `levels`: how many levels of directories may still be entered. Return False if the scan has reached a limit."""
        try:
            status = entry.stat()
        except OSError:  # a dangling link, or deleted in the meantime; `read` distinguishes them
            if holds_objects(entry.name) and not self._ignored.excludes(path, directory=False):
                self._seen.files[path] = (0, 0, 0, 0, 0)
            return True
        is_directory = stat.S_ISDIR(status.st_mode)
        if self._ignored.excludes(path, directory=is_directory):
            return True
        if not is_directory:
            if not holds_objects(entry.name):
                return True
            if len(self._seen.files) >= MOST_FILES:
                self._limit(MOST_FILES, "files")
                return False
            times = (status.st_mtime_ns, status.st_ctime_ns)
            self._seen.files[path] = (status.st_dev, status.st_ino, status.st_size, *times)
            return True
        identity = (status.st_dev, status.st_ino)
        if entry.name in _PACKAGES or identity in self._visited or not levels or self._leads_out(entry, path):
            return True
        if len(self._visited) >= MOST_DIRECTORIES:
            self._limit(MOST_DIRECTORIES, "directories")
            return False
        self._visited.add(identity)
        self._seen.directories[f"{self._root}/{path}"] = identity
        self.walk(path, levels - 1)
        return True

    def _leads_out(self, entry: os.DirEntry[str], path: str) -> bool:
        """Return whether an entry is a symbolic link to the mesh's own directory, to a directory above it, or to a
        directory of the kernel such as /proc. Such a link is not followed, because its target is not a part of the
        mesh."""
        if not entry.is_symlink():
            return False
        target, own = os.path.realpath(entry.path), os.path.realpath(self._root)
        above = own == target or own.startswith(f"{target.rstrip('/')}/")
        kernel = any(target == each or target.startswith(f"{each}/") for each in _KERNEL)
        if above and own != target:
            what = f"the link to {target} is not followed: this directory contains the mesh's own directory"
            self._pass_over(path, what, "link to the directories with the mesh's files, or remove the link")
        return above or kernel

    def _ignore_list(self) -> ignore.IgnoreList:
        content = read(self._root, ignore.NAME, self._shown)
        if isinstance(content, Unreadable):
            self._pass_over(ignore.NAME, content.problem.what.partition(";")[0], content.problem.hint)
        return ignore.parse(content.decode(errors="replace")) if isinstance(content, bytes) else ignore.IgnoreList()

    def _pass_over(self, below: str, what: str, hint: str) -> None:
        where = Where(file=printable(self._place(below)))
        self._seen.passed_over[below] = Problem(where, what, hint, Severity.WARNING)

    def _limit(self, most: int, what: str) -> None:
        hint = f"list what is not part of the mesh in {self._shown}/{ignore.NAME}, one pattern in each line"
        self._blind("", f"the directory has more than {most} {what}; the rest is not read", hint)

    def _blind(self, below: str, what: str, hint: str = "objects that were read from it before stay in effect") -> None:
        self._seen.blind[below] = Problem(Where(file=printable(self._place(below))), what, hint)

    def _place(self, below: str) -> str:
        return f"{self._shown}/{below}" if below else self._shown


def _unreadable(path: str, shown: str, reason: str, hint: str) -> Unreadable:
    where = Where(file=printable(f"{shown}/{path}"), line=1)
    what = f"the file cannot be read: {printable(reason)}; its previous objects stay in effect"
    return Unreadable(Problem(where, what, printable(hint)))


def _without_waiting(path: str, flags: int) -> int:
    """Open a file without blocking, so that a named pipe called x.yaml does not stop the loop. `flags`: those of
    os.open."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def problems_of(seen: DirectoryScan | None) -> Iterable[Problem]:
    return () if seen is None else (*seen.blind.values(), *seen.passed_over.values())
