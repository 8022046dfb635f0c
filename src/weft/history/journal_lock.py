"""A file lock, so that only one process writes a journal, until the process exits or closes the lock. Rule: it is no
error here if the lock file cannot be created, because the journal cannot be written then either and logs the
reason."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from weft.base.problem import Problem, Where

FILE = "history.lock"


class JournalTaken(Exception):
    def __init__(self, directory: Path, owner: str) -> None:
        what = f"the history in {directory} is being written by another process{f', pid {owner}' if owner else ''}"
        super().__init__(what)
        self.problem = Problem(Where(), what, "stop that process, or set another directory: --history DIR")


class JournalLock:
    """A locked file beside the journal. The journal file itself cannot be locked, because it is replaced when it is
    rewritten."""

    def __init__(self, directory: Path) -> None:
        """Lock the journal in `directory`. Raises JournalTaken if another process has the lock."""
        self._file = -1
        try:
            self._file = os.open(directory / FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode=0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            owner = os.pread(self._file, 32, 0).decode("ascii", "replace").strip()
            self.close()
            raise JournalTaken(directory, owner if owner.isdecimal() else "") from None
        except OSError:
            return

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
