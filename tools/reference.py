"""Writes docs/resources.md: for each kind, which fields weft acts on, which it accepts with a warning or without any
effect, and which it rejects. The page is derived from the readers in src/weft/api: they run on a document that has
every field that they look up. `python tools/reference.py` writes the page; a test checks that it is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path as File
from typing import Any, NamedTuple

from weft.api.document import Document, Path, dotted
from weft.api.mesh_config import NAME
from weft.api.metadata import read_metadata
from weft.api.parse import KINDS, NOT_READ
from weft.api.reader import Fields, root_of
from weft.api.report import DocumentReport
from weft.base.problem import Severity
from weft.model.gateway_api import CONTROLLER
from weft.model.names import Labels, ObjectKey
from weft.model.settings import Settings

PAGE = File(__file__).resolve().parent.parent / "docs" / "resources.md"

ACTED_ON, WARNED, IGNORED, REFUSED = "acted on", "accepted with a warning", "accepted without effect", "rejected"
DEPRECATED = "acted on, with a deprecation warning"

_INTRODUCTION = """\
# What weft reads

Generated from the code by `tools/reference.py`; do not edit. For every kind, this page lists the fields that weft
acts on, those that it accepts with a warning because it does not act on them, those that it accepts although they
have no effect in a mesh, and those that it rejects. A field that is in none of these lists is unknown. An object with
an unknown field is rejected, and the message suggests the field that was probably meant. While a new version of an
object is rejected, the last valid version stays in effect.

In the name of a field, `[]` is an item of a list, and `*` any name. In brackets after a field: its allowed values.
"""


_NOTES = {
    "Gateway": "[The edge of the mesh](gateways.md).",
    "Workload": "weft's own: [what runs](workload.md).",
}


class _Way(NamedTuple):
    """A second form of a kind, in which other fields are rejected than in its usual form."""

    answers: Mapping[str, str | None]  # values by field of the second form; None: the field is absent
    refusing: str  # the form that rejects, as text for the page


WAYS = {
    "Workload": _Way({"spec.gateway": None}, "beside `gateway`"),
    "GatewayClass": _Way({"spec.controllerName": CONTROLLER}, "in a GatewayClass with weft's `controllerName`"),
}
_REPEATED = ("spec.subsets[].trafficPolicy", "spec.trafficPolicy")


class Book:
    """The fields that the reader of a kind looked up, what happens to each, and the allowed values."""

    def __init__(self) -> None:
        self.fates: dict[str, str] = {}
        self.choices: dict[str, str] = {}
        self.sometimes: set[str] = set()  # rejected in one of the two forms of the kind

    def note(self, path: Path, fate: str) -> None:
        """Record what happens to a field. The strongest outcome stays: a rejected field may have been read before."""
        order = (ACTED_ON, DEPRECATED, IGNORED, WARNED, REFUSED)
        name = _pattern(path)
        if order.index(fate) >= order.index(self.fates.get(name, ACTED_ON)):
            self.fates[name] = fate


class Probe(Fields):
    """A document for the readers that seems to have every field, and records which fields a reader looks up."""

    def __init__(
        self,
        report: DocumentReport,
        path: Path,
        book: Book,
        *,
        full: bool,
        answers: Mapping[str, str | None] | None = None,
    ) -> None:
        super().__init__(report, path, {})
        self._book, self._full, self._answers = book, full, answers or {}

    def raw(self, name: str) -> Any:
        self._book.note((*self.path, name), ACTED_ON)
        return [] if self._full else {}  # some fields can be written as a list or as a mapping

    def has(self, name: str) -> bool:
        self.raw(name)
        return self._full

    def text(self, name: str, **_: Any) -> str:
        self.raw(name)
        return self._answers.get(_pattern((*self.path, name))) or ("{}" if name == "mesh" else "")

    def integer(self, name: str, **_: Any) -> int | None:
        self.raw(name)
        return 1 if self._full else None

    def number(self, name: str, **_: Any) -> float | None:
        self.raw(name)
        return None

    def port(self, name: str, **_: Any) -> int:
        self.raw(name)
        return 0

    def boolean(self, name: str) -> bool | None:
        self.raw(name)
        return None

    def duration(self, name: str, **_: Any) -> timedelta | None:
        self.raw(name)
        return None

    def choice(self, name: str, choices: Iterable[str], *, default: str = "", refused: Iterable[str] = ()) -> str:
        self.raw(name)
        known = sorted(choices) if isinstance(choices, frozenset) else choices
        words = ", ".join(str(choice) for choice in known)
        never = ", ".join(refused)
        self._book.choices[_pattern((*self.path, name))] = f"{words}; rejected: {never}" if never else words
        return default

    def string_map(self, name: str) -> dict[str, str]:
        self.raw(name)
        return {}

    def integer_map(self, name: str, **_: Any) -> dict[str, int]:
        self.raw(name)
        return {}

    def labels(self, name: str) -> Labels:
        self.raw(name)
        return ()

    def fields(self, name: str, **_: Any) -> Fields | None:
        self.raw(name)
        here = (*self.path, name)
        return self._below(here) if self._answers.get(_pattern(here), "") is not None else None

    def items(self, name: str, **_: Any) -> list[Fields]:
        self.raw(name)
        return [self._below((*self.path, name, 0))]

    def entries(self, name: str) -> list[tuple[str, Fields]]:
        self.raw(name)
        return [("x", self._below((*self.path, name, "*")))]

    def embedded(self, name: str, value: Mapping[str, Any], lines: Mapping[Path, int] | None = None) -> Fields:
        return self._below((*self.path, name))

    def one_of(self, *names: str) -> str:
        for name in names:
            self.raw(name)
        return ""

    def ignored(self, *names: str) -> None:
        for name in names:
            self._book.note((*self.path, name), IGNORED)

    def told_elsewhere(self, *names: str) -> None:
        for name in names:
            self.raw(name)

    def unsupported(self, *names: str) -> None:
        for name in names:
            self._book.note((*self.path, name), WARNED)

    def refused(self, name: str, what: str, hint: str = "") -> None:
        self._book.note((*self.path, name), REFUSED)

    def warning(self, name: str | Path, what: str, hint: str = "", *, code: str = "") -> None:
        if isinstance(name, str) and "deprecated" in what:
            self._book.note((*self.path, name), DEPRECATED)

    def error(self, name: str | Path, what: str, hint: str = "") -> None:
        """Ignore the error: the values of a probe are made up."""

    def lacks(self, *names: str, severity: Severity = Severity.ERROR, **_: Any) -> None:
        """Ignore missing fields: a probe leaves fields out on purpose."""

    def _list(self, name: str, *, required: bool = False) -> Sequence[Any]:
        self.raw(name)
        return ()

    def _below(self, path: Path) -> Probe:
        return Probe(self.report, path, self._book, full=self._full, answers=self._answers)


def page() -> str:
    parts = [_INTRODUCTION]
    for kind, reader in KINDS.items():
        name = kind if kind != "ConfigMap" else f"ConfigMap `{NAME}` in `{Settings().root_namespace}`"
        versions = ", ".join(f"`{version}`" for version in reader.versions)
        note = f" {_NOTES[kind]}" if kind in _NOTES else ""
        parts.append(f"## {name}\n\n{versions}.{note}\n")
        book = read_fields(kind)
        for fate in (ACTED_ON, DEPRECATED, WARNED, IGNORED, REFUSED):
            if lines := _lines(book, {field for field, found in book.fates.items() if found == fate}):
                parts.append(f"Fields of {name}, {fate}:\n" + "\n".join(lines) + "\n")
        if book.sometimes:
            lines = _lines(book, book.sometimes)
            parts.append(f"Fields of {name}, rejected {WAYS[kind].refusing}:\n" + "\n".join(lines) + "\n")
    parts.append(f"## Every kind\n\nOf `metadata`, weft acts on {_list(_metadata())}.\n")
    parts.append(
        f"## Other kinds\n\nKinds that are ignored with a warning: {_list(NOT_READ)}.\n\nA `RequestTest` is for "
        "`weft test` ([explain.md](explain.md)), and other commands only report its errors. A kind that this page does "
        "not list is an error.\n"
    )
    return "\n".join(parts)


def _lines(book: Book, wanted: Collection[str]) -> list[str]:
    """Return one line for each parent field, with those of its fields that are in `wanted`."""
    by_parent: dict[str, list[str]] = {}
    for field in sorted(book.fates):
        inner = any(other.startswith((f"{field}.", f"{field}[")) for other in book.fates)
        if field in wanted and not inner:
            parent, _, name = field.rpartition(".")
            choices = f" ({book.choices[field]})" if field in book.choices else ""
            by_parent.setdefault(parent, []).append(f"`{name}`{choices}")
    repeated, original = _REPEATED
    lines = []
    for parent, fields in sorted(by_parent.items()):
        if parent.startswith(repeated) and by_parent.get(original + parent.removeprefix(repeated)) == fields:
            lines.append(f"- `{repeated}`: as `{original}`")
        else:
            lines.append(f"- `{parent}`: {', '.join(fields)}" if parent else f"- {', '.join(fields)}")
    return list(dict.fromkeys(lines))


def read_fields(kind: str) -> Book:
    """Return the fields that a kind's reader looks up, in a document that seems to have every field and in one that
    has none."""
    book = _read_form(kind, {})
    if kind in WAYS:
        other = _read_form(kind, WAYS[kind].answers)
        for field, fate in other.fates.items():
            fates = {fate, book.fates.get(field, fate)}
            if len(fates) > 1 and REFUSED in fates:
                book.sometimes.add(field)
                (book.fates[field],) = fates - {REFUSED}
    return book


def _read_form(kind: str, answers: Mapping[str, str | None]) -> Book:
    book = Book()
    for full in (True, False):
        _run(kind, book, full=full, answers=answers)
    return book


def _run(kind: str, book: Book, *, full: bool, answers: Mapping[str, str | None]) -> None:
    settings = Settings()
    key = ObjectKey(kind, settings.root_namespace, NAME)
    document = Document(key, KINDS[kind].versions[0], {"metadata": {"name": NAME}})
    report = DocumentReport(document)
    meta = read_metadata(root_of(report), document, settings.domain)
    KINDS[kind].read(Probe(report, (), book, full=full, answers=answers), meta)


def _metadata() -> set[str]:
    book = Book()
    document = Document(ObjectKey("Service", "x", "x"), "v1", {})
    read_metadata(Probe(DocumentReport(document), (), book, full=True), document, "cluster.local")
    return {
        field.removeprefix("metadata.")
        for field, fate in book.fates.items()
        if fate == ACTED_ON and field.startswith("metadata.")
    }


def _pattern(path: Path) -> str:
    return dotted(path).replace("[0]", "[]")


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}", file=sys.stderr)
