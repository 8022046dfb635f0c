"""Checks whether a Workload's command can be started. Looks up the working directory and the program in the same way as
a pod of the Workload would."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from weft.netns.view import POD_PATH

if TYPE_CHECKING:
    from weft.api.document import Document
    from weft.base.problem import Problem
    from weft.model.workload import Workload


def problem_of(workload: Workload, document: Document) -> Problem | None:
    from weft.base.problem import Problem, Severity

    if workload.gateway:
        return None  # a gateway has no program
    directory = Path(workload.working_directory or "/")
    if not stat.S_ISDIR(mode := _mode(directory)):
        there = "is not a directory" if mode else "does not exist"
        where = document.where(("spec", "workingDirectory"))
        what, hint = f"the working directory {directory} {there}", f"mkdir -p {shlex.quote(str(directory))}"
        return Problem(where, what, hint, Severity.WARNING, "WFT0818")
    for index, mount in enumerate(workload.mounts):
        if not _mode(Path(mount)):
            hint = "correct the path, or remove it from `mounts`; a relative path starts at the file's directory"
            what = f"the mount {mount} does not exist"
            return Problem(document.where(("spec", "mounts", index)), what, hint, Severity.WARNING, "WFT0818")
    what, hint = _against(workload, directory)
    return Problem(document.where(("spec", "command", 0)), what, hint, Severity.WARNING, "WFT0818") if what else None


def _against(workload: Workload, directory: Path) -> tuple[str, str]:
    """Return (problem, hint): what is wrong with the workload's program, which is started in `directory`, and what to
    do; both are empty if nothing is wrong."""
    name = workload.command[0]
    if "/" in name:
        program = Path(os.path.normpath(directory / name))
        mode = _mode(program)
        if not mode:
            return f"the program {program} does not exist", "a relative path starts at `workingDirectory`"
        if not stat.S_ISREG(mode) or not os.access(program, os.X_OK):
            return f"the program {program} cannot be executed", f"chmod a+rx {shlex.quote(str(program))}"
        return "", ""
    search = dict(workload.environment).get("PATH", POD_PATH)
    if shutil.which(name, path=search) is None:
        beside = (
            f"write ./{name}" if stat.S_ISREG(_mode(directory / name)) else "give its full path, or set PATH in `env`"
        )
        return f"there is no program `{name}` in {search}", beside
    return "", ""


def _mode(path: Path) -> int:
    """Return the mode of a file or directory; 0 if it does not exist, also if its name is too long for a file."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0
