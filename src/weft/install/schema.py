"""Generates the OpenAPI schema of a kind's `spec` from the kind's own reader: types, enums, limits and required
fields.

Each reader in `api` runs on a Recorder, which imitates a document and records which fields the reader accesses, and
how. The imitated document first has every field, then none; of fields that exclude each other, it has one at a time.
So a schema knows exactly the fields that the reader knows. Rule: nothing is ever pruned. The API server accepts
unknown fields, and the validating webhook reports them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import product
from typing import Any, NamedTuple

from weft.api.document import Document, Path
from weft.api.metadata import read_metadata
from weft.api.parse import KINDS
from weft.api.reader import MILLISECOND, MOST_TEXT, Fields, root_of
from weft.api.report import DocumentReport
from weft.base.problem import Severity
from weft.model.names import Labels, ObjectKey
from weft.model.settings import Settings

_TURNS = 6  # more than there are fields that exclude each other: the last turn has none of them
_ANY = "1"  # the one key in a mapping with free keys: valid both as a port number and as a word
_UNKNOWN = {"x-kubernetes-preserve-unknown-fields": True}


def recorded(kind: str) -> Shape:
    """Return the shape of everything that a kind's reader accesses, from the object's root down."""
    root = Shape()
    for full, turn in product((True, False), range(_TURNS)):
        document = Document(ObjectKey(kind, "x", "x"), KINDS[kind].versions[0], {"metadata": {"name": "x"}})
        report = DocumentReport(document)
        meta = read_metadata(root_of(report), document, Settings().domain)
        KINDS[kind].read(Recorder(report, (), root, _Pose(full, turn)), meta)
    return root


def whole_number() -> dict[str, Any]:
    """Return the schema of an integer, which may be a string: protobuf's JSON quotes 64-bit integers, and Istio accepts
    any integer in quotes."""
    return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}


class Shape:
    """What a Recorder has recorded about one field of a kind while the kind's reader ran: its types, limits,
    properties or items, and whether it is optional. `schema` returns this as an OpenAPI schema."""

    def __init__(self) -> None:
        self.types: dict[str, dict[str, Any]] = {}  # each with its limits, enum or format
        self.properties: dict[str, Shape] = {}
        self.values: Shape | None = None  # of a mapping with free keys
        self.items: Shape | None = None
        self.optional = False
        self.note = ""

    def is_a(self, type_: str, **more: Any) -> None:
        self.types.setdefault(type_, {}).update(more)

    def schema(self) -> dict[str, Any]:
        return {"description": self.note, **self._schema()} if self.note else self._schema()

    def _schema(self) -> dict[str, Any]:
        if len(self.types) != 1:
            return dict(_UNKNOWN)
        ((type_, more),) = self.types.items()
        if type_ == "integer":
            return {**whole_number(), "pattern": "^-?[0-9]+$", **more}
        if type_ == "array":
            return {"type": "array", "items": self.items.schema() if self.items else dict(_UNKNOWN)}
        return {"type": type_, **more} if type_ != "object" else self._object()

    def _object(self) -> dict[str, Any]:
        if self.values is not None:
            return {"type": "object", "additionalProperties": self.values.schema()}
        schema: dict[str, Any] = {"type": "object", **_UNKNOWN}
        if self.properties:
            schema["properties"] = {name: shape.schema() for name, shape in sorted(self.properties.items())}
        required = sorted(name for name, shape in self.properties.items() if shape.types and not shape.optional)
        return {**schema, "required": required} if required else schema


class _Pose(NamedTuple):
    """Which document a Recorder imitates: one with every field (`full`) or one with none. A full document has
    only one of several fields that exclude each other; `turn` selects it."""

    full: bool
    turn: int


class Recorder(Fields):
    """A stand-in for `Fields` that has every field a reader accesses, and records the field's type."""

    def __init__(self, report: DocumentReport, path: Path, shape: Shape, pose: _Pose) -> None:
        super().__init__(report, path, {})
        self._shape, self._pose, self._full = shape, pose, pose.full
        shape.is_a("object")

    def raw(self, name: str) -> Any:
        self._of(name)
        return [] if self._full else {_ANY: {}}  # some fields may be a list or a mapping

    def has(self, name: str) -> bool:
        self._of(name)
        return self._full

    def text(self, name: str, *, default: str = "", required: bool = False, most: int = MOST_TEXT) -> str:
        self._note(name, "string", required=required)
        return default

    def integer(self, name: str, *, least: int = 0, most: int = 2**31 - 1) -> int | None:
        self._note(name, "integer", minimum=least, maximum=most)
        return 1 if self._full else None

    def number(self, name: str, *, least: float, most: float) -> float | None:
        self._note(name, "number", minimum=least, maximum=most)
        return None

    def port(self, name: str, *, required: bool = False) -> int:
        self._note(name, "integer", required=required, minimum=1, maximum=65_535)
        return 0

    def ports(self, name: str) -> tuple[int, ...]:
        self._list(name)
        self._item(name).is_a("integer", minimum=1, maximum=65_535)
        return ()

    def boolean(self, name: str) -> bool | None:
        self._note(name, "boolean")
        return None

    def choice(self, name: str, choices: Iterable[str], *, default: str = "", refused: Iterable[str] = ()) -> str:
        known = {str(word) for word in (*choices, *refused, default) if word}
        self._note(name, "string", enum=sorted(known))
        return default

    def duration(self, name: str, *, least: timedelta = MILLISECOND, required: bool = False) -> timedelta | None:
        # The API server has a clear message for this named format; of a pattern it only prints the regular expression.
        # The format is less strict: the webhook rejects what it wrongly accepts.
        self._note(name, "string", required=required, format="duration")
        return None

    def texts(self, name: str, *, required: bool = False, most: int = 4_096) -> tuple[str, ...]:
        self._list(name, required=required)
        self._item(name).is_a("string")
        return ()

    def numbered_texts(
        self,
        name: str,
        valid: Callable[[str], bool],
        what: str,
        hint: str = "",
        *,
        required: bool = False,
        most: int = 255,
    ) -> list[tuple[int, str]]:
        self.texts(name, required=required)
        return []

    def string_map(self, name: str) -> dict[str, str]:
        self._note(name, "object")
        shape = self._of(name)
        shape.values = shape.values or Shape()
        shape.values.is_a("string")
        return {}

    def integer_map(self, name: str, *, least: int, most: int) -> dict[str, int]:
        self._note(name, "object")
        shape = self._of(name)
        shape.values = shape.values or Shape()
        shape.values.is_a("integer", minimum=least, maximum=most)
        return {}

    def labels(self, name: str) -> Labels:
        self.string_map(name)
        return ()

    def fields(self, name: str, *, required: bool = False) -> Fields | None:
        self._note(name, "object", required=required)
        return self._below(name, self._of(name))

    def embedded(self, name: str, value: Mapping[str, Any], lines: Mapping[Path, int] | None = None) -> Fields:
        return self._below(name, self._of(name))

    def items(self, name: str, *, required: bool = False) -> list[Fields]:
        self._list(name, required=required)
        return [self._below(name, self._item(name))]

    def entries(self, name: str) -> list[tuple[str, Fields]]:
        self._note(name, "object")
        shape = self._of(name)
        shape.values = shape.values or Shape()
        return [(_ANY, self._below(name, shape.values))]

    def one_of(self, *names: str) -> str:
        self.ignored(*names)
        return (*names, "")[min(self._pose.turn, len(names))]

    def ignored(self, *names: str) -> None:
        for name in names:
            self._of(name)

    def told_elsewhere(self, *names: str) -> None:
        self.ignored(*names)

    def unsupported(self, *names: str) -> None:
        for name in names:
            self._of(name).note = "Accepted with a warning: this version of weft does not act on it."

    def refused(self, name: str, what: str, hint: str = "") -> None:
        self._of(name).note = f"Rejected: {what.replace('`', '')}."

    def outdented(self, holder: str, names: Iterable[str]) -> bool:
        return False

    def warning(self, name: str | Path, what: str, hint: str = "", *, code: str = "") -> None:
        """Ignore the warning: a recorder's values are not real."""

    def error(self, name: str | Path, what: str, hint: str = "") -> None:
        """Ignore the error: a recorder's values are not real."""

    def lacks(self, *names: str, severity: Severity = Severity.ERROR, **_: Any) -> None:
        """Ignore missing fields: the empty document lacks them on purpose."""

    def _list(self, name: str, *, required: bool = False) -> Sequence[Any]:
        self._note(name, "array", required=required)
        return ()

    def _note(self, name: str, type_: str, *, required: bool = False, **more: Any) -> None:
        shape = self._of(name)
        shape.is_a(type_, **more)
        shape.optional = shape.optional or not required  # also if it is required in some cases only

    def _of(self, name: str) -> Shape:
        if name == _ANY:
            self._shape.values = self._shape.values or Shape()
            return self._shape.values
        return self._shape.properties.setdefault(name, Shape())

    def _item(self, name: str) -> Shape:
        shape = self._of(name)
        shape.items = shape.items or Shape()
        return shape.items

    def _below(self, name: str, shape: Shape) -> Recorder:
        return Recorder(self.report, (*self.path, name), shape, self._pose)
