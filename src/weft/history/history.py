"""The history of the mesh: every applied change, so that the mesh can be reconstructed as it was at any recorded
moment.

Input: changed objects, before and after. Output: a mesh as it was. Values are immutable and shared with the mesh, so a
moment needs memory only for what it changed. Rule: the history is bounded, and drops the oldest moment first. Endpoints
change all the time, so endpoint changes within one minute are one moment.
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
BYTES = 8 << 20  # limit of the encoded size of all moments; in memory they take a few times as much
GATHERED = 60.0  # seconds within which endpoint changes are one moment


class Forgotten(Exception):
    """The requested moment is not recorded: it never was, or it has been dropped from the history since."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.problem = Problem(Where(), what, hint)


class Edit(msgspec.Struct, frozen=True):
    key: ObjectKey
    before: tuple[Value, ...]  # empty: the object did not exist
    after: tuple[Value, ...]  # empty: the object was deleted

    @property
    def of_endpoints(self) -> bool:
        """Whether this edit changes only endpoints."""
        return all(isinstance(value, Instance | EndpointSlice) for value in (*self.before, *self.after))


class Moment(msgspec.Struct, frozen=True):
    """One recorded change of the mesh. `number` counts changes; 0 is the state after the first objects were loaded.
    `at`: the Unix time. `edits`: the changed objects. `digest`: that of all objects after this change."""

    number: int
    at: float  # time of the first edit, in seconds since 1970
    edits: tuple[Edit, ...]
    digest: str = ""  # digest of all objects after this moment

    @property
    def of_endpoints(self) -> bool:
        return all(edit.of_endpoints for edit in self.edits)


class _Record:
    """A moment under construction: edits may still be added to it."""

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
                # `after` needs no memory: it is shared with the mesh, or with the next edit's `before`.
                self.bytes += _weight(edit.before)


class History:
    def __init__(
        self,
        mesh: Mesh,
        settings: Settings,
        *,
        digest: Callable[[], str] = str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`mesh` is the running mesh. `settings` are used for a past mesh that has no settings object. `digest` returns
        the digest of all current objects. `clock`: returns the Unix time."""
        self._mesh = mesh
        self._digest = digest
        self._first = ""  # the digest before the first recorded moment
        self._settings = settings
        self._clock = clock
        self._records: deque[_Record] = deque()
        self._gathering: dict[ObjectKey, Edit] = {}
        self._number = 0
        self._restored = -1
        self._begun = 0.0

    def note(self, key: ObjectKey, before: tuple[Value, ...], after: tuple[Value, ...]) -> None:
        """Record that the values of an object have changed from `before` to `after`; () if it did not or does not
        exist. The change becomes part of a moment when `seal` is called next."""
        if not self._begun:
            return  # loading the first objects is not a change
        first = self._gathering.get(key)
        self._gathering[key] = Edit(key, first.before if first else _without_keys(before), _without_keys(after))

    def seal(self) -> Moment | None:
        """Add a moment with all changes since the last call. If only endpoints have changed, and the last moment is
        less than a minute old and also changed only endpoints, the changes are added to that moment instead. Returns
        the new or extended moment; None if nothing changed. The first call adds no moment and returns None: the objects
        that were loaded until then are the state 0, with which the history starts."""
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
        """Add the moments of earlier runs of the control plane, oldest first. `begun` is when the first of these
        runs started. `first` is the digest of all objects before these moments. Endpoints of earlier runs are not
        recorded, so the current endpoints are used for these moments."""
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
        self._drop_oldest()

    @property
    def begun(self) -> float:
        """When the first objects were loaded; 0 if they are not loaded yet."""
        return self._begun

    def moments(self) -> tuple[Moment, ...]:
        """Return all recorded moments, oldest first."""
        return tuple(record.moment() for record in self._records)

    @property
    def first_digest(self) -> str:
        """The digest of all objects before the first recorded moment."""
        return self._first

    @property
    def latest(self) -> int:
        """The number of the last moment; 0 if nothing has changed yet."""
        return self._number

    @property
    def oldest(self) -> int:
        """The number of the oldest state that can be reconstructed: the state before the first recorded moment,
        whose number is one less than that moment's."""
        return self._records[0].number - 1 if self._records else self._number

    def number_at(self, at: float) -> int:
        """Return the number of the last moment at or before time `at`. Raises Forgotten."""
        if at < self._begun:
            raise Forgotten(
                "the control plane was not running yet at that time", "weft history shows when it was started"
            )
        before = [record.number for record in self._records if record.at <= at]
        return before[-1] if before else self.oldest

    def number(self, number: int) -> int:
        """Return the number of the moment that `number` names, after checking that it is recorded. A negative number
        counts changes back from the end, without moments that changed only endpoints: -1 is the moment before the last
        change, -2 the moment before the second last. Raises Forgotten."""
        wanted = number
        if number < 0:
            numbers = [record.number for record in self._records if not record.of_endpoints]
            if -number > len(numbers):
                reason = f"only {len(numbers)} changes are recorded" if numbers else "nothing has changed yet"
                raise Forgotten(
                    f"moment {number} is not recorded: {reason}", "list the recorded moments with: weft history"
                )
            wanted = numbers[number] - 1
        if not self.oldest <= wanted <= self._number:
            what = f"moment {number} is not recorded: the history has moments {self.oldest} to {self._number}"
            raise Forgotten(what, "list the recorded moments with: weft history")
        return wanted

    def number_of(self, digest: str) -> int:
        """Return the number of the last moment whose digest is, or begins with, `digest`. Raises Forgotten."""
        for record in reversed(self._records):
            if record.digest.startswith(digest):
                return record.number
        if self._first.startswith(digest):
            return self.oldest
        raise Forgotten(f"no recorded moment has the digest {digest}", "list the recorded moments with: weft history")

    def past(self) -> Past:
        """Return a copy of the history, which other threads may read."""
        return Past(tuple(self._mesh.values()), self.moments(), self._settings, self._restored)

    def mesh_at(self, number: int) -> Mesh:
        """Return the mesh as it was after moment `number`. Raises Forgotten."""
        return self.past().mesh_at(self.number(number))

    def _add(self, edits: tuple[Edit, ...]) -> None:
        now = self._clock()
        of_endpoints = all(edit.of_endpoints for edit in edits)
        last = self._records[-1] if self._records else None
        # A moment keeps the time of its first edit. Otherwise constant endpoint changes would extend one moment for
        # ever.
        if last is None or not (of_endpoints and last.of_endpoints and now - last.at < GATHERED):
            self._number += 1
            last = _Record(self._number, now, of_endpoints=of_endpoints)
            self._records.append(last)
        last.add(edits)
        last.digest = self._digest()
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        while len(self._records) > 1 and (
            len(self._records) > MOMENTS
            or sum(len(each.edits) for each in self._records) > EDITS
            or sum(each.bytes for each in self._records) > BYTES
        ):
            self._first = self._records.popleft().digest


class Past(msgspec.Struct, frozen=True):
    """An immutable copy of the history, which another thread may read. `objects`: the current objects. Moments up to
    the number `restored` are from earlier runs (-1: there are none). Pods of earlier runs are not recorded: for these
    moments the current pods are used, if their workload existed at that time."""

    objects: tuple[tuple[ObjectKey, tuple[Value, ...]], ...]
    moments: tuple[Moment, ...]
    settings: Settings
    restored: int = -1  # the last moment of earlier runs; -1: there was no earlier run

    def mesh_at(self, number: int) -> Mesh:
        """Return the mesh as it was after a recorded moment."""
        mesh = mesh_of(self.objects, self.settings)
        for moment in reversed(self.moments):
            if moment.number <= number:
                break
            _undo(mesh, moment)
        if number <= self.restored:
            _lend(self._pods(), mesh)
        return mesh

    def backwards(self) -> Iterator[tuple[Moment, Mesh]]:
        """Yield each moment, the newest first, with the mesh as it was before that moment. The mesh is the same
        object each time, changed in place."""
        mesh, pods = mesh_of(self.objects, self.settings), self._pods()
        for moment in reversed(self.moments):
            _undo(mesh, moment)
            if moment.number <= self.restored:
                _lend(pods, mesh)
            yield moment, mesh

    def _pods(self) -> tuple[tuple[ObjectKey, Instance, bool], ...]:
        """Return the current pods: for each its key, its Instance, and whether its Workload is among the current
        objects."""
        workloads = {key for key, _ in self.objects if key.kind == "Workload"}
        return tuple(
            (key, value, _workload(value) in workloads)
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
    """Add the current `pods` to a past mesh. Each of `pods` is a key, an Instance, and whether the pod's Workload is
    among the current objects. If it is, the pod is added only if that Workload also exists in `mesh`."""
    for key, pod, has_object in pods:
        values = (pod,) if not has_object or mesh.get(_workload(pod)) else ()
        if mesh.get(key) != values:
            mesh.apply(key, values)


def _workload(pod: Instance) -> ObjectKey:
    return ObjectKey("Workload", pod.namespace, pod.workload)


def _without_keys(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return the values without private keys. The history must not keep a key: it may have been replaced because it
    leaked."""
    if not any(isinstance(value, Credential) for value in values):
        return values
    return tuple(value.hidden() if isinstance(value, Credential) else value for value in values)


def _weight(values: tuple[Value, ...]) -> int:
    """Return the approximate size of the values: the length of their encoding."""
    try:
        return len(msgspec.msgpack.encode(values))
    except (TypeError, ValueError):  # a value cannot be encoded
        return 1024
