"""Find the objects that differ between two meshes, and which of them changed the outcome of a request. An object that
only moved within its file, or to another file, counts as unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from weft.api.request_test import RequestCase
from weft.base.ambiguous import Ambiguous
from weft.base.problem import Where
from weft.explain.decision import ObjectSource
from weft.history.history import Edit, mesh_of
from weft.inspect.ask.question import Question
from weft.inspect.compare.trial import JudgedRequest, judged
from weft.inspect.stage import NoSuchWorkload, Stage
from weft.mesh.mesh import Mesh
from weft.model.names import ObjectKey, where_of
from weft.model.value import Value

MOST_TRIED = 8  # objects that are tried one by one; each attempt translates a mesh

_CALLERS = frozenset({"Workload", "WorkloadEntry", "Deployment", "Pod"})
_PLACES = frozenset({"origin", "file", "line", "lines"})


class ChangedObject(msgspec.Struct, frozen=True):
    object: ObjectKey
    what: str  # added, changed, removed
    where: Where

    def __str__(self) -> str:
        place = f" ({self.where.file}:{self.where.line})" if self.where.file else ""
        return f"{self.object}{place}"


def changed_object(edit: Edit) -> ChangedObject:
    what = "changed" if edit.before and edit.after else "added" if edit.after else "removed"
    origin = next((value.origin for value in edit.after or edit.before if value.origin is not None), None)
    return ChangedObject(edit.key, what, where_of(origin, str(edit.key)))


def edits(before: Mesh, after: Mesh) -> tuple[Edit, ...]:
    """The objects that differ between the meshes `before` and `after`. Pods and endpoints are left out, since `weft
    diff` shows them per proxy."""
    old, new = dict(before.values()), dict(after.values())
    changed = (
        Edit(key, old.get(key, ()), new.get(key, ()))
        for key in sorted({*old, *new})
        if old.get(key, ()) != new.get(key, ())
    )
    return tuple(edit for edit in changed if not edit.of_endpoints and meaning(edit.before) != meaning(edit.after))


class Attribution:
    """Finds out which of several changed objects changed the outcome of a request."""

    def __init__(self, before: Stage, changes: tuple[Edit, ...], now: datetime) -> None:
        self._before, self._changes, self._now = before, changes, now
        self._alone: dict[ObjectKey, Stage] = {}

    def of(self, case: RequestCase | Question, was: JudgedRequest, becomes: JudgedRequest) -> str:
        """The object that changed the outcome of the request `case` from `was` to `becomes`, with its file and line, as
        text; "" if no single object is responsible."""
        if was.explanation is None or becomes.explanation is None:
            return self._of_caller(case)
        changed = {(edit.key.kind, edit.key.namespace, edit.key.name): edit for edit in self._changes}
        for source in _decisive(was, becomes):
            edit = changed.get((source.kind, source.namespace, source.name))
            if edit is not None:
                return str(changed_object(edit))
        if len(self._changes) == 1:
            return str(changed_object(self._changes[0]))
        for edit in self._changes[:MOST_TRIED]:
            if judged(self._with(edit), case, self._now).ways != was.ways:
                return str(changed_object(edit))
        return ""

    def _of_caller(self, case: RequestCase | Question) -> str:
        """The object that declares the caller of the request `case`, if the change added or removed it; else "". Used
        for a request that cannot be resolved before or after the change."""
        word = case.caller.removeprefix("deploy/").removeprefix("deployment/").removeprefix("pod/")
        try:
            pod = self._before.instance(case.caller, "" if "." in word or "/" in word else case.namespace)
            names = {(pod.namespace, pod.name), (pod.namespace, pod.workload)}
        except (NoSuchWorkload, Ambiguous):
            name, _, namespace = word.partition(".")
            if "/" in word:
                namespace, _, name = word.partition("/")
            namespace = namespace or case.namespace
            names = {(namespace, name), (namespace, name.rpartition("-")[0])}
        callers = [each for each in self._changes if each.key.kind in _CALLERS]
        for edit in callers:
            if (edit.key.namespace, edit.key.name) in names and bool(edit.before) != bool(edit.after):
                return str(changed_object(edit))
        return ""

    def _with(self, edit: Edit) -> Stage:
        """The stage before the change, with only this edit applied."""
        stage = self._alone.get(edit.key)
        if stage is None:
            mesh = mesh_of(self._before.mesh.values(), self._before.mesh.settings)
            mesh.apply(edit.key, edit.after)
            stage = self._alone[edit.key] = Stage(mesh)
        return stage


def turned_by(before: Stage, after: Stage, case: RequestCase | Question, now: datetime) -> str:
    """The object that changed the outcome of the request `case` between the stages `before` and `after`, if several
    objects changed at once. "" if no single object is responsible, or if only one object changed."""
    changes = edits(before.mesh, after.mesh)
    if len(changes) == 1:
        return ""
    return Attribution(before, changes, now).of(case, judged(before, case, now), judged(after, case, now))


def _decisive(was: JudgedRequest, becomes: JudgedRequest) -> Iterable[ObjectSource]:
    """The objects behind the decisions that differ between the old outcome (`was`) and the new one (`becomes`), the
    likeliest cause first. Objects of new decisions come before objects of decisions that no longer exist, because a
    policy that allowed the request before is not the reason why it is denied now. Within new decisions and within old
    ones, objects of the last decision come first, since the verdict is the last decision."""
    for one, other in ((becomes, was), (was, becomes)):
        same = set(_steps(other))
        for step, sources in reversed(_steps(one)):
            if (step, sources) not in same:
                yield from sources


def _steps(judgement: JudgedRequest) -> list[tuple[str, tuple[ObjectSource, ...]]]:
    outcomes = judgement.sourced().outcomes if judgement.explanation is not None else ()
    return [(f"{step.stage} {step.what}", step.sources) for outcome in outcomes for step in outcome.steps]


def meaning(values: tuple[Value, ...]) -> Any:
    """The values in a form that can be compared, without their files and lines."""
    try:
        return _without_places(msgspec.to_builtins(values))
    except (TypeError, ValueError):  # a value cannot be converted to plain types; then every difference counts
        return values


def _without_places(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {name: _without_places(value) for name, value in plain.items() if name not in _PLACES}
    if isinstance(plain, (list, tuple)):
        return [_without_places(each) for each in plain]
    return plain
