"""Decides which of the machine's files an app sees.

Everything that is open to all users of the machine stays visible. A directory that is closed to others, such as a
mesh's directory with the mode 0700, shows an app only what its Workload declares: its `mounts`, and its
`workingDirectory` if that field is set. Without `workingDirectory`, the app starts in the directory of its file, and
sees there only the files that its command names, so that `command: [python3, app.py]` works. The objects of the mesh
and the keys beside them stay hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from weft.model.workload import ExecProbe, Workload
from weft.netns.view import Laid, View, is_closed


def view_of(workload: Workload, uid: int, *, visible: Iterable[str] = (), files: Iterable[Laid] = ()) -> View:
    """Return the view of a workload's app, which runs as the user and group `uid`. `visible`: paths that every app
    sees. `files`: files that are mounted over others."""
    directory = workload.working_directory or "/"
    is_hidden = directory not in workload.mounts and Path(directory).is_dir() and is_closed(uid, uid, directory)
    named = _named(workload, Path(directory)) if is_hidden else ()
    return View(
        visible=(*visible, *workload.mounts, *named),
        hidden=(directory,) if is_hidden else (),
        files=tuple(files),
    )


def _named(workload: Workload, directory: Path) -> Iterator[str]:
    """Yield the paths of the files inside `directory` that the workload's command, or the command of its readiness
    probe, names."""
    check = workload.readiness.check if workload.readiness is not None else None
    for word in (*workload.command, *(check.command if isinstance(check, ExecProbe) else ())):
        path = directory / word
        try:
            is_inside = directory.resolve() in (path.parent.resolve() / path.name).parents
            if is_inside and path.is_file():
                yield str(path)
        except (OSError, ValueError):  # a word that cannot be a path, for example a program in one long line
            continue
