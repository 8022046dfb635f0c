"""Documents come in, the mesh changes, and what it touched goes on to the push loop.

Rule: a bad object stops no other, and never takes away what was good before; only an object that is really gone goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weft.api.document import Change
from weft.api.parse import parse
from weft.control.problems import Problems
from weft.model.mesh import Mesh, Touched, Value
from weft.model.names import ObjectKey

Admit = Callable[[Value], Value]


class Intake:
    def __init__(self, mesh: Mesh, problems: Problems, *, domain: str, admit: Admit | None = None) -> None:
        self._mesh = mesh
        self._problems = problems
        self._domain = domain
        self._admit = admit or as_it_is
        self.refused: dict[ObjectKey, tuple[Value, ...]] = {}  # objects with errors, and what they seem to be

    def documents(self, changes: Iterable[Change]) -> tuple[Touched, frozenset[ObjectKey]]:
        """Apply changes; returns what they touched and which objects are now different."""
        touched = Touched()
        changed: set[ObjectKey] = set()
        for change in changes:
            values: tuple[Value, ...] = ()
            if change.document is None:
                self._problems.put(change.key, ())
                self.refused.pop(change.key, None)
            else:
                parsed = parse(change.document, self._domain)
                self._problems.put(change.key, parsed.problems)
                self.refused.pop(change.key, None)
                if parsed.meant:
                    self.refused[change.key] = parsed.meant
                if not parsed.values:
                    continue
                values = parsed.values
            before = self._mesh.get(change.key)
            touched |= self.values(change.key, values)
            if self._mesh.get(change.key) != before:
                changed.add(change.key)
        return touched, frozenset(changed)

    def values(self, key: ObjectKey, values: tuple[Value, ...]) -> Touched:
        return self._mesh.apply(key, tuple(self._admit(value) for value in values))


def as_it_is(value: Value) -> Value:
    return value
