"""The memory of this process is nobody's to read: it holds keys, of workloads or of the CA."""

from __future__ import annotations

import ctypes
import os

_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4
_libc = ctypes.CDLL(None, use_errno=True)


def keep_memory_private() -> None:
    """No core dump, whatever the limits and core_pattern say, and no debugger but root's. What is started from here
    decides for itself: the kernel forgets it at the next exec."""
    if _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def is_memory_private() -> bool:
    return bool(_libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) == 0)
