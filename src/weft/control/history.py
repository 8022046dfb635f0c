"""What the mesh was: every change that was taken in, so that any moment of the last hours can be looked at again.

Objects come in as they were and as they are; out comes a mesh as it stood. Values are frozen and shared with the mesh,
so a moment costs as much as it changed. Rule: it is bounded, and forgets the oldest first. Who answers changes all the
time, so such changes of one minute are one moment.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import msgspec

from weft.base.problem import Problem, Where
from weft.model.endpoint_slice import EndpointSlice
from weft.model.instance import Instance
from weft.model.mesh import Mesh, Value
from weft.model.names import ObjectKey
from weft.model.settings import Settings

MOMENTS = 1_000
EDITS = 20_000
GATHERED = 60.0  # seconds of changes of who answers that are one moment


class Forgotten(Exception):
    """A moment before everything that is remembered."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.problem = Problem(Where(), what, hint)


class Edit(msgspec.Struct, frozen=True):
    key: ObjectKey
    before: tuple[Value, ...]  # none: it was not there
    after: tuple[Value, ...]  # none: it is gone

    @property
    def of_endpoints(self) -> bool:
        """Whether it says only who answers."""
        return all(isinstance(value, Instance | EndpointSlice) for value in (*self.before, *self.after))


class Moment(msgspec.Struct, frozen=True):
    """`number` counts from the first objects, which are 0; what is after a moment is before the next."""

    number: int
    at: float  # seconds since 1970, of its first edit
    edits: tuple[Edit, ...]

    @property
    def of_endpoints(self) -> bool:
        return all(edit.of_endpoints for edit in self.edits)


class History:
    def __init__(self, mesh: Mesh, settings: Settings, *, clock: Callable[[], float] = time.time) -> None:
        """`settings`: those of a mesh that has none of its own."""
        self._mesh = mesh
        self._settings = settings
        self._clock = clock
        self._moments: deque[Moment] = deque()
        self._gathering: dict[ObjectKey, Edit] = {}
        self._number = 0
        self._edits = 0
        self._begun = 0.0

    def note(self, key: ObjectKey, before: tuple[Value, ...], after: tuple[Value, ...]) -> None:
        """An object has become another. `seal` makes a moment of everything that was noted since the last."""
        if not self._begun:
            return  # how it all begins is no change
        first = self._gathering.get(key)
        self._gathering[key] = Edit(key, first.before if first else before, after)

    def seal(self) -> None:
        edits = tuple(edit for edit in self._gathering.values() if edit.before != edit.after)
        self._gathering.clear()
        if not self._begun:
            self._begun = self._clock()
        elif edits:
            self._add(edits)

    @property
    def begun(self) -> float:
        """When the first objects were here; 0 if they are not."""
        return self._begun

    def moments(self) -> tuple[Moment, ...]:
        """Oldest first."""
        return tuple(self._moments)

    def number_at(self, at: float) -> int:
        """The last moment at or before that time. Raises Forgotten."""
        if at < self._begun:
            raise Forgotten("the control plane was not there yet", "weft history shows since when it is")
        before = [moment.number for moment in self._moments if moment.at <= at]
        return before[-1] if before else self._oldest()

    def number(self, number: int) -> int:
        """The number of a moment that is remembered; -1 is the one before the last. Raises Forgotten."""
        wanted = number if number >= 0 else self._number + number
        if not self._oldest() <= wanted <= self._number:
            what = f"moment {number} is not remembered: there are {self._oldest()} to {self._number}"
            raise Forgotten(what, "list them with: weft history")
        return wanted

    def mesh_at(self, number: int) -> Mesh:
        """As it was after that moment. Raises Forgotten."""
        wanted = self.number(number)
        values = dict(self._mesh.values())
        for edit in self._backwards(wanted):
            values[edit.key] = edit.before
        return mesh_of(values.items(), self._settings)

    def backwards(self) -> Iterator[tuple[Moment, Mesh]]:
        """Each moment, the newest first, with the mesh as it was before it. It is one mesh, which goes back in time."""
        mesh = mesh_of(self._mesh.values(), self._settings)
        for moment in reversed(self._moments):
            for edit in moment.edits:
                mesh.apply(edit.key, edit.before)
            yield moment, mesh

    def _backwards(self, wanted: int) -> Iterator[Edit]:
        for moment in reversed(self._moments):
            if moment.number <= wanted:
                return
            yield from moment.edits

    def _oldest(self) -> int:
        """The moment before the first that is remembered: it can still be looked at."""
        return self._moments[0].number - 1 if self._moments else self._number

    def _add(self, edits: tuple[Edit, ...]) -> None:
        now = self._clock()
        last = self._moments[-1] if self._moments else None
        if last and last.of_endpoints and now - last.at < GATHERED and all(edit.of_endpoints for edit in edits):
            together = {edit.key: edit for edit in last.edits}
            for edit in edits:
                first = together.get(edit.key)
                together[edit.key] = Edit(edit.key, first.before if first else edit.before, edit.after)
            self._edits += len(together) - len(last.edits)
            # Its time stays, or a mesh that is never quiet would have one moment for ever.
            self._moments[-1] = Moment(last.number, last.at, tuple(together.values()))
        else:
            self._number += 1
            self._edits += len(edits)
            self._moments.append(Moment(self._number, now, edits))
        while len(self._moments) > MOMENTS or (self._edits > EDITS and len(self._moments) > 1):
            self._edits -= len(self._moments.popleft().edits)


def mesh_of(objects: Iterable[tuple[ObjectKey, tuple[Value, ...]]], settings: Settings) -> Mesh:
    mesh = Mesh(settings)
    for key, values in objects:
        if values:
            mesh.apply(key, values)
    return mesh
