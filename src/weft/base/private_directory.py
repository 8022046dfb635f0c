"""Directories for sockets and files that are their owner's alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class NotPrivate(Exception):
    """A directory in which others may look, or that is somebody else's."""


def make_private(directory: Path) -> None:
    """Raises OSError, or NotPrivate if it is there and not private already: somebody may have opened it."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise NotPrivate(f"{directory} is not a directory of yours alone") from None
