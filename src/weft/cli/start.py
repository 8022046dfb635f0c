"""Entry point of the program `weft`. The commands that run in every pod, while the pod's start waits for them, are run
without importing the rest of the command line, which would take half a second and 30 MB."""

from __future__ import annotations

import errno
import gc
import os
import sys
import warnings

from weft.cli.pod.listed import IN_PODS, run

_SERVING = ("control", "demo", "node", "up")  # long-running commands, which must use little memory
# Allocations before Python's garbage collector runs. A short command keeps what it loads until it ends: collecting
# repeatedly would take a tenth of its time, and freeing everything at the end another tenth.
_MANY = 100_000

_OF_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)


_INTERRUPTED = 130  # 128 + SIGINT, as in shells


def main() -> None:
    for name in ("stdout", "stderr"):  # a stream may be closed, as by 2>&-
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    if not sys.warnoptions:  # Python's warnings are for developers: python -W default -m weft.cli
        warnings.simplefilter("ignore")
    if len(sys.argv) > 1 and sys.argv[1] in IN_PODS:
        sys.exit(run(sys.argv[1], sys.argv[2:]))
    if len(sys.argv) < 2 or sys.argv[1] not in _SERVING:
        gc.set_threshold(_MANY)
    try:
        try:
            _start()
        finally:
            gc.freeze()
            sys.stdout.flush()
    except OSError as error:
        # An error of standard output has no file name. A closed pipe, as by `| head`, gets no message.
        if error.filename is not None or error.errno not in _OF_OUTPUT:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else flushing at exit fails again
        if error.errno != errno.EPIPE:
            print(f"error: cannot write: {error.strerror}", file=sys.stderr)
            hint = "free space on the disk that standard output is written to, or redirect it elsewhere"
            print(f"hint: {hint}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:  # before a command has started; a running command handles it itself
        sys.exit(_INTERRUPTED)


def _start() -> None:
    if sys.argv[1:] == ["version"]:  # without a mesh, this needs no other imports either
        from weft.cli.reach import local_versions

        if not local_versions.is_somebody_there():
            print("\n".join(local_versions.lines(local_versions.here())))
            return
    from weft.cli.main import main as everything

    everything()
