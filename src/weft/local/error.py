"""Exceptions of the local engine. Each contains a problem with a hint for the next step."""

from __future__ import annotations

from weft.base.problem import Problem, Where


class LocalError(Exception):
    """An error of the local engine. `problem` contains what is wrong, where, and what to do next; the CLI prints it and
    exits."""

    def __init__(self, what: str, hint: str = "", *, where: str = "") -> None:
        self.problem = Problem(Where(object=where), what, hint)
        super().__init__(str(self.problem))


class NoSuchMesh(LocalError):
    def __init__(self, name: str = "") -> None:
        what = f"no mesh named `{name}` is running" if name else "no mesh is running"
        super().__init__(what, "start one with `weft up DIR`")


class CannotStart(LocalError):
    """A command that should run in a pod cannot be started: the program does not exist, or may not be executed."""
