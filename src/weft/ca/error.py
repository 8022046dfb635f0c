"""Errors of the authority itself: its files, its key, its configuration. The operator must fix them; the hint
describes how."""

from __future__ import annotations

from pathlib import Path

from weft.base.problem import Problem, Where


class AuthorityError(Exception):
    def __init__(self, what: str, hint: str = "", *, file: Path | str = "") -> None:
        self.problem = Problem(Where(file=str(file)), what, hint)
        super().__init__(str(self.problem))
