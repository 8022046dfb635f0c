"""The command line that runs this same weft again, as another process or as root. `weft` alone is not enough: sudo
uses another PATH, without the virtual environment.

Rule: the current directory is never searched for modules (-P), because a file in it, such as `jwt.py`, could be
imported instead of the real module.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

WEFT = (sys.executable, "-P", "-m", "weft.cli")


def with_this_weft(hint: str) -> str:
    """Return `hint` with commands that can be pasted, because they contain the path of this weft. A hint that begins
    with `sudo weft` is replaced by the command that the user typed, run with sudo: `sudo /PATH/weft up .`. In any other
    hint, `sudo weft …` becomes `sudo /PATH/weft …`."""
    if not hint.startswith("sudo weft"):
        return hint.replace("sudo weft …", f"sudo {_command()} …")
    return f"sudo {_command()} {shlex.join(sys.argv[1:])}".rstrip()


def _command() -> str:
    if Path(sys.argv[0]).name == "__main__.py":
        return shlex.join(WEFT)
    path = shutil.which(sys.argv[0])
    return shlex.quote(str(Path(path).absolute())) if path else "weft"
