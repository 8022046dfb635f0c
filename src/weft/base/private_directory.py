"""Directories for sockets and files that only their owner may access."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class NotPrivate(Exception):
    """The directory is accessible to other users, or belongs to another user."""


def make_private(directory: Path) -> None:
    """Create a directory that only its owner may access. Raises OSError, or NotPrivate if the directory exists and
    is not private: another process may have opened files in it."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        status = directory.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise NotPrivate(f"{directory} is not a directory that only you can access") from None
