"""Keeps this process's memory unreadable for other processes: it holds keys of workloads or of the CA."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4
_libc = ctypes.CDLL(None, use_errno=True)


def keep_memory_private() -> None:
    """Disable core dumps, whatever the limits and core_pattern are, and debuggers except root's. Child programs are not
    affected: the kernel resets this at the next exec."""
    if _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def is_memory_private() -> bool:
    return bool(_libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) == 0)


@contextmanager
def memory_file(content: bytes) -> Iterator[str]:
    """A path that this process can read, for libraries that take keys only from files. The file is on no disk, no other
    process can open it, and it is gone after the block."""
    descriptor = os.memfd_create("weft", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
