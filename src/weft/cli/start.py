"""Where the program `weft` starts. What runs once or more in every pod, while somebody waits for that pod, is started
without the rest of the command line: that takes half a second and thirty megabytes, and these need neither.
"""

from __future__ import annotations

import errno
import gc
import os
import sys

from weft.cli.pod.listed import IN_PODS, run

_SERVING = ("control", "demo", "node", "up")  # these stay, and have to do with little memory
# So many new objects before Python looks for what nobody refers to. What a command loads, it keeps to its end: to look
# at it over and over would take a tenth of the time of an answer, and to take it apart at the end once more as much.
_MANY = 100_000

_OF_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)


_INTERRUPTED = 130  # 128 and SIGINT, as shells have it


def main() -> None:
    for name in ("stdout", "stderr"):  # either may be closed, as by 2>&-
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
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
        # An error of standard output names no file. Whoever has closed a pipe, as head does, wants no more words.
        if error.filename is not None or error.errno not in _OF_OUTPUT:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or what is left would fail once more at the very end
        if error.errno != errno.EPIPE:
            print(f"error: cannot write: {error.strerror}", file=sys.stderr)
            print("hint: make room where standard output goes, or send it elsewhere", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:  # before a command has begun; who has begun says more
        sys.exit(_INTERRUPTED)


def _start() -> None:
    if sys.argv[1:] == ["version"]:  # nor does this, where there is no mesh to ask
        from weft.cli.reach import local_versions

        if not local_versions.is_somebody_there():
            print("\n".join(local_versions.lines(local_versions.here())))
            return
    from weft.cli.main import main as everything

    everything()
