"""Prevents other processes from reading this process's memory, which contains private keys of workloads or of the
CA."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4
_libc = ctypes.CDLL(None, use_errno=True)


def keep_memory_private() -> None:
    """Prevent core dumps of this process, whatever its limits and the kernel's core_pattern are, and prevent users
    other than root from attaching a debugger. Child programs are not affected: the kernel resets this setting at
    the next exec."""
    if _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def is_memory_private() -> bool:
    return bool(_libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) == 0)


@contextmanager
def memory_file(content: bytes) -> Iterator[str]:
    """Yield a path from which this process can read `content`, for libraries that accept keys only as files. The
    file is not on a disk, no other process can open it, and it does not exist after the `with` block."""
    descriptor = os.memfd_create("weft", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
