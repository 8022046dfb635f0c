"""Which of the machine's files a process in a pod sees: the plan of its private mounts, as shell lines.

A directory that the process's user may not enter is covered by a new directory, which contains only the paths that
were declared visible. A directory that was declared hidden is covered in the same way. Single files are mounted over
others. The host's mounts never change: each process has its own mount namespace.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from weft.netns.namespace import DIRECTORY, NetworkError

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# weft's own programs first, so that `python3` in a pod is the interpreter that runs weft; then the machine's.
POD_PATH = f"{Path(sys.executable).parent}:{SYSTEM_PATH}"

# With more entries, one mount per entry would take too long.
_MOST_ENTRIES = 200


class Laid(msgspec.Struct, frozen=True):
    """The file `source` is mounted over `target`."""

    source: str
    target: str


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What a process sees. `visible` paths can be reached even below directories that the process's user may not enter.
    `hidden` directories look empty, except that visible paths in them can be reached. `files` are mounted over other
    files. The modes of files still apply: a view makes nothing readable or writable that its mode forbids."""

    visible: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    files: tuple[Laid, ...] = ()


def mount_lines(view: View, uid: int, gid: int) -> list[str]:
    """Return the shell lines that mount `view` for this user. They must run as root in a new, private mount
    namespace, and need /run/netns, which exists while at least one network namespace has a name."""
    # New directories are assembled at /run/netns: it exists, and a pod does not need to see its content.
    stage = _quoted(DIRECTORY)
    # A mount of a network namespace that is copied into a process would keep the deleted namespace alive as long as the
    # process.
    lines = [f"umount -l {stage} 2>/dev/null || :"]
    # Before any cover, which may hide the sources. A cover keeps mounted files, as it keeps visible paths.
    for laid in view.files:
        lines.append(f"mount --bind {_quoted(laid.source)} {_quoted(_target(laid))}")
    for cover in _covers(view, uid, gid):
        staged = {path: DIRECTORY / path.relative_to(cover.path) for path in cover.kept}
        directories = {staged[path] if path.is_dir() else staged[path].parent for path in cover.kept}
        directories |= {DIRECTORY / path.relative_to(cover.path) for path in cover.empty}
        files = [staged[path] for path in cover.kept if not path.is_dir()]
        lines.append(f"mount -t tmpfs -o mode=0755,size=1m weft {stage}")
        if directories:
            # Whatever umask weft was started with: the user must be able to enter these directories.
            lines.append(f"(umask 022 && mkdir -p {' '.join(map(_quoted, sorted(directories)))})")
        if files:
            lines.append(f"touch {' '.join(map(_quoted, files))}")
        lines += [f"mount --rbind {_quoted(path)} {_quoted(staged[path])}" for path in cover.kept]
        lines.append(f"mount --move {stage} {_quoted(cover.path)}")
    return lines


def may(uid: int, gid: int, path: str | Path, wanted: int) -> bool:
    """Return whether the mode of `path` itself lets the user do `wanted` (4 read, 2 write, 1 enter or execute, or a
    sum)."""
    status = Path(path).stat()
    shift = 6 if status.st_uid == uid else 3 if status.st_gid == gid else 0
    return uid == 0 or (status.st_mode >> shift) & wanted == wanted


def closed_ancestors(uid: int, gid: int, path: str | Path) -> list[Path]:
    """Return the ancestor directories of `path` that the user may not enter, outermost first."""
    return [parent for parent in reversed(Path(path).resolve().parents) if not may(uid, gid, parent, 1)]


def is_closed(uid: int, gid: int, path: str | Path) -> bool:
    """Return whether the user may not reach or list the directory `path`."""
    return bool(closed_ancestors(uid, gid, path)) or _is_closed(Path(path).resolve(), uid, gid)


def is_below(path: Path, directory: Path) -> bool:
    """Return whether `path` is `directory` or inside it."""
    return path == directory or directory in path.parents


class _Cover(msgspec.Struct, frozen=True):
    path: Path
    kept: tuple[Path, ...]
    empty: tuple[Path, ...] = ()  # hidden directories inside this cover


def _covers(view: View, uid: int, gid: int) -> Iterator[_Cover]:
    shown = (*view.visible, *(laid.target for laid in view.files))
    visible = sorted({real for path in shown if Path(path).exists() for real in _places(Path(path))})
    hidden = {Path(path).resolve() for path in view.hidden if Path(path).is_dir()}
    candidates = set(hidden)
    for path in (*visible, *hidden):
        candidates.update(closed_ancestors(uid, gid, path))
    for path in visible:
        if _is_closed(path, uid, gid):
            candidates.add(path)
    done: list[_Cover] = []
    # Outermost first: a path that an outer cover hides needs no cover of its own, a path that it keeps may need one.
    for path in sorted(candidates):
        if any(is_below(path, cover.path) and not any(is_below(path, kept) for kept in cover.kept) for cover in done):
            continue
        below = [each for each in visible if is_below(each, path) and not (each == path and path in hidden)]
        kept = tuple(_outermost(_expanded(below, uid, gid)))
        empty = (each for each in hidden if path in each.parents and not any(is_below(each, other) for other in kept))
        done.append(_Cover(path, kept, tuple(sorted(empty))))
        yield done[-1]


def _places(path: Path) -> set[Path]:
    """Return the two real paths of `path`: its target, if it is a symbolic link, and the link itself in its real
    directory. They are equal if `path` is no link."""
    return {path.resolve(), path.parent.resolve() / path.name}


def _expanded(paths: Sequence[Path], uid: int, gid: int) -> Iterator[Path]:
    """Yield the paths to mount. A directory that the user may not enter cannot be mounted as a whole, so its entries
    are yielded instead."""
    for path in paths:
        if not _is_closed(path, uid, gid):
            yield path
            continue
        entries = sorted(path.iterdir())
        if len(entries) > _MOST_ENTRIES:
            what = f"{path} is closed to UID {uid} and has too many entries to mount them one by one"
            raise NetworkError(what, f"chmod o+rx {_quoted(path)}")
        for entry in entries:
            # A dangling link has nothing to show. A closed directory on the way to a visible path is created anew.
            leads_on = any(entry in other.parents for other in paths)
            if entry.exists() and not (leads_on and _is_closed(entry, uid, gid)):
                yield entry


def _is_closed(path: Path, uid: int, gid: int) -> bool:
    return path.is_dir() and not may(uid, gid, path, 5)


def _outermost(paths: Iterable[Path]) -> list[Path]:
    kept: list[Path] = []
    for path in sorted(set(paths)):
        if not any(is_below(path, outer) for outer in kept):
            kept.append(path)
    return kept


def _target(laid: Laid) -> Path:
    # A link such as /etc/resolv.conf → /run/systemd/… is covered at its target.
    target = Path(laid.target).resolve()
    for path in (Path(laid.source), target):
        if not path.exists():
            raise NetworkError(f"{path} does not exist, so {laid.target} cannot be replaced", f"touch {_quoted(path)}")
    return target


def _quoted(path: str | Path) -> str:
    return shlex.quote(str(path))
