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
from weft.mesh.mesh import Mesh
from weft.model.credential import Credential
from weft.model.endpoint_slice import EndpointSlice
from weft.model.instance import Instance
from weft.model.names import ObjectKey
from weft.model.settings import Settings
from weft.model.value import Value

MOMENTS = 1_000
EDITS = 20_000
BYTES = 8 << 20  # as they would be written; in memory it is some times as much
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
    digest: str = ""  # of what was written, after it

    @property
    def of_endpoints(self) -> bool:
        return all(edit.of_endpoints for edit in self.edits)


class _Record:
    """A moment while it may still grow."""

    def __init__(self, number: int, at: float, *, of_endpoints: bool) -> None:
        self.number, self.at, self.of_endpoints = number, at, of_endpoints
        self.edits: dict[ObjectKey, Edit] = {}
        self.bytes = 0
        self.digest = ""

    def moment(self) -> Moment:
        return Moment(self.number, self.at, tuple(self.edits.values()), self.digest)

    def add(self, edits: Iterable[Edit]) -> None:
        for edit in edits:
            first = self.edits.get(edit.key)
            self.edits[edit.key] = Edit(edit.key, first.before if first else edit.before, edit.after)
            if first is None:
                self.bytes += _weight(edit.before)  # what is after it is in the mesh, or before the next


class History:
    def __init__(
        self,
        mesh: Mesh,
        settings: Settings,
        *,
        digest: Callable[[], str] = str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`settings`: those of a mesh that has none of its own. `digest`: of all that is written now."""
        self._mesh = mesh
        self._digest = digest
        self._first = ""  # the digest before all that is remembered
        self._settings = settings
        self._clock = clock
        self._records: deque[_Record] = deque()
        self._gathering: dict[ObjectKey, Edit] = {}
        self._number = 0
        self._restored = -1
        self._begun = 0.0

    def note(self, key: ObjectKey, before: tuple[Value, ...], after: tuple[Value, ...]) -> None:
        """An object has become another. `seal` makes a moment of everything that was noted since the last."""
        if not self._begun:
            return  # how it all begins is no change
        first = self._gathering.get(key)
        self._gathering[key] = Edit(key, first.before if first else _without_keys(before), _without_keys(after))

    def seal(self) -> Moment | None:
        """The moment that it made, or that grew."""
        edits = tuple(edit for edit in self._gathering.values() if edit.before != edit.after)
        self._gathering.clear()
        if not self._begun:
            self._begun = self._clock()
            self._first = self._digest()
        elif edits:
            self._add(edits)
            return self._records[-1].moment()
        return None

    def restore(self, begun: float, moments: Iterable[Moment], first: str) -> None:
        """What was before this control plane: the moments of earlier ones, oldest first. `first`: the digest before
        them. Who answered then is not known; it is as now."""
        earlier = 0 < begun < self._begun
        self._begun, self._first = begun, first
        for moment in moments:
            record = _Record(moment.number, moment.at, of_endpoints=False)
            record.add(moment.edits)
            record.digest = moment.digest
            self._records.append(record)
            self._number = moment.number
        if earlier or self._records:
            self._restored = self._number
        self._forget_the_oldest()

    @property
    def begun(self) -> float:
        """When the first objects were here; 0 if they are not."""
        return self._begun

    def moments(self) -> tuple[Moment, ...]:
        """Oldest first."""
        return tuple(record.moment() for record in self._records)

    @property
    def first_digest(self) -> str:
        """Of what was there before everything that is remembered."""
        return self._first

    @property
    def latest(self) -> int:
        """The number of the last moment; 0 if nothing has changed yet."""
        return self._number

    @property
    def oldest(self) -> int:
        """The moment before the first that is remembered: it can still be looked at."""
        return self._records[0].number - 1 if self._records else self._number

    def number_at(self, at: float) -> int:
        """The last moment at or before that time. Raises Forgotten."""
        if at < self._begun:
            raise Forgotten("the control plane was not there yet", "weft history shows since when it is")
        before = [record.number for record in self._records if record.at <= at]
        return before[-1] if before else self.oldest

    def number(self, number: int) -> int:
        """The number of a moment that is remembered; -1 is the one before the last in which more has changed than who
        answers. Raises Forgotten."""
        wanted = number
        if number < 0:
            told = [record.number for record in self._records if not record.of_endpoints]
            if -number > len(told):
                known = f"only {len(told)} of its changes are" if told else "nothing has changed yet"
                raise Forgotten(f"moment {number} is not remembered: {known}", "list them with: weft history")
            wanted = told[number] - 1
        if not self.oldest <= wanted <= self._number:
            what = f"moment {number} is not remembered: there are {self.oldest} to {self._number}"
            raise Forgotten(what, "list them with: weft history")
        return wanted

    def number_of(self, digest: str) -> int:
        """The last moment after which that was written; the beginning of a digest is enough. Raises Forgotten."""
        for record in reversed(self._records):
            if record.digest.startswith(digest):
                return record.number
        if self._first.startswith(digest):
            return self.oldest
        raise Forgotten(f"no moment that is remembered has the digest {digest}", "list them with: weft history")

    def past(self) -> Past:
        """All of it, as it is now, for who takes a while to look at it."""
        return Past(tuple(self._mesh.values()), self.moments(), self._settings, self._restored)

    def mesh_at(self, number: int) -> Mesh:
        """As it was after that moment. Raises Forgotten."""
        return self.past().mesh_at(self.number(number))

    def _add(self, edits: tuple[Edit, ...]) -> None:
        now = self._clock()
        of_endpoints = all(edit.of_endpoints for edit in edits)
        last = self._records[-1] if self._records else None
        # Its time stays, or a mesh that is never quiet would have one moment for ever.
        if last is None or not (of_endpoints and last.of_endpoints and now - last.at < GATHERED):
            self._number += 1
            last = _Record(self._number, now, of_endpoints=of_endpoints)
            self._records.append(last)
        last.add(edits)
        last.digest = self._digest()
        self._forget_the_oldest()

    def _forget_the_oldest(self) -> None:
        while len(self._records) > 1 and (
            len(self._records) > MOMENTS
            or sum(len(each.edits) for each in self._records) > EDITS
            or sum(each.bytes for each in self._records) > BYTES
        ):
            self._first = self._records.popleft().digest


class Past(msgspec.Struct, frozen=True):
    """Values that do not change: another thread may look at them. Until `restored` it is that of earlier runs, of whose
    pods nothing is known: there are those of now, of the workloads that there were."""

    objects: tuple[tuple[ObjectKey, tuple[Value, ...]], ...]
    moments: tuple[Moment, ...]
    settings: Settings
    restored: int = -1  # the last moment before this run; -1: there was no earlier one

    def mesh_at(self, number: int) -> Mesh:
        """As it was after a moment that is remembered."""
        mesh = mesh_of(self.objects, self.settings)
        for moment in reversed(self.moments):
            if moment.number <= number:
                break
            _undo(mesh, moment)
        if number <= self.restored:
            _lend(self._pods(), mesh)
        return mesh

    def backwards(self) -> Iterator[tuple[Moment, Mesh]]:
        """Each moment, the newest first, with the mesh as it was before it. It is one mesh, which goes back in time."""
        mesh, pods = mesh_of(self.objects, self.settings), self._pods()
        for moment in reversed(self.moments):
            _undo(mesh, moment)
            if moment.number <= self.restored:
                _lend(pods, mesh)
            yield moment, mesh

    def _pods(self) -> tuple[tuple[ObjectKey, Instance, bool], ...]:
        """Those of now, each with whether its workload is written."""
        written = {key for key, _ in self.objects if key.kind == "Workload"}
        return tuple(
            (key, value, _workload(value) in written)
            for key, values in self.objects
            if key.kind == "Pod"
            for value in values
            if isinstance(value, Instance)
        )


def mesh_of(objects: Iterable[tuple[ObjectKey, tuple[Value, ...]]], settings: Settings) -> Mesh:
    mesh = Mesh(settings)
    with mesh.together():
        for key, values in objects:
            if values:
                mesh.apply(key, values)
    mesh.settle()
    return mesh


def _undo(mesh: Mesh, moment: Moment) -> None:
    for edit in moment.edits:
        mesh.apply(edit.key, edit.before)


def _lend(pods: tuple[tuple[ObjectKey, Instance, bool], ...], mesh: Mesh) -> None:
    """One whose workload is written now was there no earlier than that."""
    for key, pod, written in pods:
        values = (pod,) if not written or mesh.get(_workload(pod)) else ()
        if mesh.get(key) != values:
            mesh.apply(key, values)


def _workload(pod: Instance) -> ObjectKey:
    return ObjectKey("Workload", pod.namespace, pod.workload)


def _without_keys(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """A key that was replaced may have been replaced because somebody has it."""
    if not any(isinstance(value, Credential) for value in values):
        return values
    return tuple(value.hidden() if isinstance(value, Credential) else value for value in values)


def _weight(values: tuple[Value, ...]) -> int:
    """About how much they hold: as long as they are when they are written."""
    try:
        return len(msgspec.msgpack.encode(values))
    except (TypeError, ValueError):  # something in them cannot be written
        return 1024
