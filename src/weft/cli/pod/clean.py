"""`weft clean`: runs in the pods with which `weft uninstall` removes the agent's directories from every node."""

from __future__ import annotations

import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

_HELP = """Usage: weft clean [DIR...] [--if-empty DIR...] | --done

  Remove directories with everything in them; a directory that does not exist is no error.

    --if-empty  remove the directories after this option only if they are empty
    --done      remove nothing, and wait for SIGTERM: the pod counts as ready while this command runs

  Example: weft clean /host/state/weft/default --if-empty /host/state/weft
"""


def run(arguments: list[str]) -> int:
    if "-h" in arguments or "--help" in arguments or not arguments:
        print(_HELP, end="")
        return 0 if arguments else 2
    if arguments == ["--done"]:
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
        return 0
    place = arguments.index("--if-empty") if "--if-empty" in arguments else len(arguments)
    for directory in arguments[:place]:
        try:
            shutil.rmtree(directory)
        except FileNotFoundError:
            continue
        except OSError as error:
            print(f"error: {directory} cannot be removed: {error.strerror}", file=sys.stderr)
            return 1
    for directory in arguments[place + 1 :]:
        with suppress(OSError):  # another installation may use it
            Path(directory).rmdir()
    return 0
