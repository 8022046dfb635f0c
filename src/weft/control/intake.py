"""Parses documents, applies them to the mesh, and returns which parts of the mesh they may have affected, for the push
loop.

Rule: an invalid object does not affect others, and does not replace its own last valid version; only a deleted object
is removed. An invalid policy that never had a valid version denies every request (fail closed).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import msgspec

from weft.analyze.finding import coded
from weft.api.document import Change, Document
from weft.api.parse import Parsed, parse
from weft.base.problem import Problem, Severity, Where
from weft.control.problems import Problems
from weft.history.object_texts import Contents
from weft.mesh.mesh import Mesh
from weft.mesh.touched import Touched, joined
from weft.model.names import ObjectKey
from weft.model.value import Admit, Value, as_it_is

log = logging.getLogger(__name__)

Note = Callable[[ObjectKey, tuple[Value, ...], tuple[Value, ...]], None]


class RejectedObject(msgspec.Struct, frozen=True):
    """An object whose newest version is rejected. `where`: the place of that version, if it is known. `is_in_force`:
    whether an earlier version is in force."""

    key: ObjectKey
    where: Where
    is_in_force: bool


class Intake:
    def __init__(
        self,
        mesh: Mesh,
        problems: Problems,
        *,
        domain: str,
        admit: Admit | None = None,
        note: Note = lambda _key, _before, _after: None,
    ) -> None:
        """`domain`: the DNS domain of services. `admit`: completes each value before it is added to the mesh; None for
        no change. `note`: is called for every changed object, with its values before and after."""
        self._mesh = mesh
        self._note = note
        self._problems = problems
        self._domain = domain
        self._admit = admit or as_it_is
        # By id of the document: documents that `read` has parsed already.
        self._read: dict[int, tuple[Document, Parsed]] = {}
        self._closed: set[ObjectKey] = set()  # policies that were never valid, and are in force as "deny all"
        self.contents = Contents()  # the objects in force, as documents
        self.refused: dict[ObjectKey, tuple[Value, ...]] = {}  # rejected objects, as far as they could be parsed
        self._rejected: dict[ObjectKey, Where] = {}  # every object whose newest version is rejected, and where that is

    def documents(self, changes: Iterable[Change]) -> tuple[Touched, frozenset[ObjectKey]]:
        """Apply changes to the mesh. Returns the parts of the mesh that may have been affected, and the keys of the
        objects that changed. Documents that `read` has parsed since the last call are not parsed again."""
        touches: list[Touched] = []
        changed: set[ObjectKey] = set()
        with self._mesh.together():
            self._take_all(changes, touches, changed)
        self._read.clear()
        touches.append(self._mesh.settle())
        return joined(touches), frozenset(changed)

    def read(self, document: Document) -> Parsed:
        """Parse a document without applying it; its problems are in the result. The result is kept until the next
        call of `documents`, which then does not parse the same document again. Any thread may call this."""
        parsed = self._read.get(id(document))
        if parsed is None:
            parsed = self._read[id(document)] = (document, parse(document, self._domain))
        return parsed[1]

    def good_file(self, key: ObjectKey) -> str:
        """Return the file of the object's version that is in force. "" if no valid version is in force, or if it
        does not come from a file."""
        return "" if key in self._closed else self.contents.file(key)

    def rejected(self, unreadable: Iterable[ObjectKey] = ()) -> tuple[RejectedObject, ...]:
        """Return the objects whose newest version is not in force. `unreadable`: objects whose newest version cannot
        even be read."""
        places = {**self._rejected, **dict.fromkeys(unreadable, Where())}
        return tuple(
            RejectedObject(key, where, is_in_force=bool(self._mesh.get(key)) and key not in self._closed)
            for key, where in sorted(places.items(), key=lambda each: each[0])
        )

    def _take_all(self, changes: Iterable[Change], touches: list[Touched], changed: set[ObjectKey]) -> None:
        for change in changes:
            try:
                touched = self._take(change)
            except Exception as error:  # a defect in weft: this object is rejected, the others are applied
                log.exception("cannot apply %s", change.key)
                where = change.document.where() if change.document else Where(object=str(change.key))
                what = f"this object cannot be processed because of a defect in weft: {type(error).__name__}: {error}"
                self._problems.put(change.key, [Problem(where, what, "please report the defect, with the object")])
                continue
            if touched is not None:
                touches.append(touched)
                changed.add(change.key)

    def _take(self, change: Change) -> Touched | None:
        """Apply one change. Returns the parts of the mesh that it may have affected; None if the object is
        unchanged."""
        values: tuple[Value, ...] = ()
        problems: tuple[Problem, ...] = ()
        self.refused.pop(change.key, None)
        self._rejected.pop(change.key, None)
        if change.document is not None:
            parsed_before = self._read.pop(id(change.document), None)
            parsed = parsed_before[1] if parsed_before is not None else parse(change.document, self._domain)
            values, problems = parsed.values, parsed.problems
            if parsed.meant:
                self.refused[change.key] = parsed.meant
        self._problems.put(change.key, map(coded, problems))
        before = self._mesh.get(change.key)
        if change.document is not None and not values and any(each.severity is Severity.ERROR for each in problems):
            self._rejected[change.key] = change.document.where()
        if change.document is not None and not values:
            if (before and change.key not in self._closed) or not parsed.closed:
                return None
            values = parsed.closed
            self._closed.add(change.key)
        else:
            self._closed.discard(change.key)
        if change.document is None:
            self.contents.drop(change.key)
        else:
            self.contents.put(change.document)
        touched = self.values(change.key, values)
        return touched if self._mesh.get(change.key) != before else None

    def all_values(self, batch: Iterable[tuple[ObjectKey, tuple[Value, ...]]]) -> Touched:
        """Apply the values of many objects: `batch` yields the key and the values of each. An object that fails stays
        unchanged, and the others are applied."""
        touches: list[Touched] = []
        for key, values in batch:
            try:
                touches.append(self.values(key, values))
            except Exception:  # a defect in weft
                log.exception("cannot apply %s; it stays unchanged", key)
        return joined(touches)

    def values(self, key: ObjectKey, values: tuple[Value, ...]) -> Touched:
        before = self._mesh.get(key)
        touched = self._mesh.apply(key, tuple(self._admit(value) for value in values))
        after = self._mesh.get(key)
        if after != before:
            self._note(key, before, after)
        return touched
