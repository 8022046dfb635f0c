"""The directory of a self-made root: one state file, which is always replaced as a whole, and a lock, so that only
one process signs. Only the owner may read the state file; this is checked."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path

import msgspec

from weft.ca.error import AuthorityError
from weft.ca.rotation import State

STATE = "authority.json"
BUNDLE = "bundle.pem"  # the roots for users and other programs; written from the state, never read by weft
_LOCK = "authority.lock"


class Store:
    def __init__(self, directory: Path) -> None:
        """Lock the directory for this process, and create it if it is missing. Raises AuthorityError."""
        self.directory = directory
        self._lock = _take(directory)

    def load(self) -> State | None:
        return read_state(self.directory)

    def save(self, state: State) -> None:
        """Write the state and the bundle. After this returns, the state survives a power failure. If this raises
        OSError, both files have their earlier content, as far as the disk allows: the bundle is replaced first, and
        is restored if the state file cannot be replaced."""
        bundle, path = self.directory / BUNDLE, self.directory / STATE
        staged = stage_file(path, msgspec.json.format(msgspec.json.encode(state)), mode=0o600)
        try:
            before = bundle.read_bytes() if bundle.exists() else None
            replace_file(bundle, "".join(state.bundle()).encode(), mode=0o644)
        except OSError:
            staged.unlink()
            raise
        try:
            put_in_place(staged, path)
        except OSError:
            with contextlib.suppress(OSError):
                replace_file(bundle, before, mode=0o644) if before is not None else bundle.unlink()
            raise

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def read_state(directory: Path) -> State | None:
    """Return the state in `directory`, or None if there is no state file. Raises AuthorityError."""
    path = directory / STATE
    text = read_secret(path)
    if text is None:
        return None
    try:
        state = msgspec.json.decode(text, type=State)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # The decoder's message names fields, never their content.
        raise AuthorityError(
            f"the file is not a valid state of weft's CA: {error}",
            "restore it from a backup; without this file weft creates a new root",
            file=path,
        ) from error
    if state.version != 1:
        raise AuthorityError(
            f"the file was written by a newer weft (version {state.version})", "use that version of weft", file=path
        )
    return state


def read_secret(path: Path) -> bytes | None:
    """Return the content of a file that only its owner may read, or None if the file does not exist. Raises
    AuthorityError if other users may read the file, or if the file belongs to neither root nor the user of this
    process."""
    try:
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            if facts.st_mode & (stat.S_IRWXG | stat.S_IRWXO) and not _is_given(facts):
                mode = stat.S_IMODE(facts.st_mode)
                raise AuthorityError(
                    f"the file contains a private key, and other users may read it (mode {mode:04o})",
                    f"check who could have read it, then: chmod 600 {path}",
                    file=path,
                )
            if facts.st_uid not in (0, os.geteuid()):
                raise AuthorityError(
                    f"the file belongs to another user ({facts.st_uid})", f"chown {os.geteuid()} {path}", file=path
                )
            return file.read(1 << 20)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AuthorityError(f"the file cannot be read: {error.strerror}", f"try: ls -l {path}", file=path) from error


def _is_given(facts: os.stat_result) -> bool:
    """Return whether a file, with the stat result `facts`, is owned by root and readable by this process's group, as in
    a Secret that Kubernetes mounts for a non-root process."""
    shared = facts.st_mode & (stat.S_IRWXG | stat.S_IRWXO) == stat.S_IRGRP
    return shared and facts.st_uid == 0 != os.geteuid() and facts.st_gid in (os.getegid(), *os.getgroups())


def replace_file(path: Path, content: bytes, *, mode: int) -> None:
    """Replace a file atomically: write a file with this `mode` beside it, flush, rename, and flush the directory. A
    reader sees either the old or the new content."""
    put_in_place(stage_file(path, content, mode=mode), path)


def stage_file(path: Path, content: bytes, *, mode: int) -> Path:
    """Write the future content of `path` to a file beside it, flush it, and return that file."""
    beside = path.with_name(f".{path.name}.new")
    with contextlib.suppress(FileNotFoundError):
        beside.unlink()
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)  # independent of the umask
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    return beside


def put_in_place(staged: Path, path: Path) -> None:
    """Rename a staged file to `path`, and flush the directory. If the rename fails, the staged file is removed."""
    try:
        staged.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            staged.unlink()
        raise
    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def _take(directory: Path) -> int:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = directory.stat()
        if facts.st_uid not in (0, os.geteuid()):
            raise AuthorityError(
                f"the directory belongs to another user ({facts.st_uid})",
                "use a directory that belongs to you",
                file=directory,
            )
        if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise AuthorityError("other users may write to the directory", f"chmod 700 {directory}", file=directory)
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise AuthorityError(
            f"cannot store a root here: {error.strerror}",
            "use a writable directory: --ca DIR",
            file=directory,
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise AuthorityError(
            "another process signs with this root",
            "only one weft control or weft up may use a directory at a time",
            file=directory,
        ) from error
    return lock
