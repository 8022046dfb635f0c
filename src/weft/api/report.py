"""Collects the problems of one document while its fields are read (`reader.py`), and returns them in the order of
lines. Rule: only the root cause of a mistake is reported. An error that may follow from another error is kept until
the end, and dropped if that other error exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from weft.api.document import Document, Path
from weft.base.problem import Problem, Severity

MOST_PROBLEMS = 100  # per object; an author would not read more


class Cursor(Protocol):
    """One mapping of a document, at `path`, while its fields are read. The class `reader.Fields` implements this."""

    path: Path

    def report_unknown(self) -> None:
        """Report the fields that no getter has read."""

    def is_misspelled(self, name: str) -> bool:
        """Whether the field `name` seems to be set under a similar, unknown name."""


class Consequence(msgspec.Struct, frozen=True):
    """An error that may be only the consequence of an error in another field. `causes`: these other fields, each as a
    mapping and the field's name. The error is reported only if none of these fields has an error itself. `path`: the
    place of the error."""

    causes: tuple[tuple[Cursor, str], ...]
    path: Path
    what: str
    hint: str
    severity: Severity


class DocumentReport:
    """The problems of one document, collected while it is read."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.failed = False
        self._problems: list[Problem] = []
        self._opened: list[Cursor] = []
        self._wrong: set[Path] = set()
        self._consequences: list[Consequence] = []

    def error(self, path: Path, what: str, hint: str = "") -> None:
        self.failed = True
        self._wrong.add(path)
        self._add(path, what, hint, Severity.ERROR)

    def warning(self, path: Path, what: str, hint: str = "", *, code: str = "") -> None:
        """Add the warning `what` about the field at `path`. `code`: the WFT code, if the warning is also a check of
        `weft analyze`; "" otherwise."""
        self._add(path, what, hint, Severity.WARNING, code)

    def finish(self) -> tuple[Problem, ...]:
        """Return all problems, including unknown fields, in the order of the lines. Call it once, after all fields have
        been read."""
        for cursor in self._opened:
            cursor.report_unknown()
        for each in self._consequences:
            if not any(self._is_root(cursor, name) for cursor, name in each.causes):
                self._add(each.path, each.what, each.hint, each.severity)
        return tuple(sorted(self._problems, key=lambda problem: problem.where.line))

    def add_lines(self, lines: Mapping[Path, int]) -> None:
        self.document = msgspec.structs.replace(self.document, lines={**self.document.lines, **lines})

    def opened(self, cursor: Cursor) -> None:
        self._opened.append(cursor)

    def consequence(self, found: Consequence) -> None:
        """Add the error `found`, which may follow from another error. `finish` decides whether it is reported, because
        misspelled fields are known only at the end."""
        self.failed = self.failed or found.severity is Severity.ERROR
        self._consequences.append(found)

    def _is_root(self, cursor: Cursor, name: str) -> bool:
        """Whether the field `name` of the mapping `cursor` has an error, or is set under a misspelled name, so that an
        error that follows from it is not reported."""
        return cursor.is_misspelled(name) or self.is_wrong((*cursor.path, name))

    def is_wrong(self, at: Path) -> bool:
        """Whether an error has been reported so far at this path or below it."""
        return any(path[: len(at)] == at for path in self._wrong)

    def _add(self, path: Path, what: str, hint: str, severity: Severity, code: str = "") -> None:
        if len(self._problems) < MOST_PROBLEMS:
            self._problems.append(Problem(self.document.where(path), what, hint, severity, code))
