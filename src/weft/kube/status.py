"""Writes the statuses of objects: the condition `Accepted`, and for the Gateway API's objects the whole statuses
that the Gateway API requires (`gateway_status.py`).

The watch passes the current statuses (`see`), the control plane passes the problems of objects (`judge`), and the
leader writes the differences (`run`). A condition is written by server-side apply under weft's field manager; a
Gateway API status is written as a whole, based on the version it was computed from. Rule: an object is written only
if its status should change, conditions of other controllers are not touched, and a rejected write does not stop the
other writes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from weft.base.backoff import Backoff
from weft.base.problem import Problem, Severity
from weft.kube.client import Client, PatchType
from weft.kube.error import ApiError, KubeError
from weft.kube.gateway_status import Wanted, is_right, status_of
from weft.kube.objects import JudgedObject, ObjectCondition, ObjectStatus
from weft.kube.resource import ResourceKind
from weft.model.gateway_api import GROUP
from weft.model.names import ObjectKey

log = logging.getLogger("weft.kube")

MANAGER = "weft-status"  # the field manager, in the objects' managedFields
CONDITION = "Accepted"
PER_SECOND = 20.0  # writes per second on average: the limit of istiod's clients
BURST = 50
_AT_ONCE = 8
_LONGEST_MESSAGE = 4_096
_FIRST_DELAY, _MOST_DELAY = 1.0, 60.0  # seconds, between attempts at one object
_FORBIDDEN = 300.0  # seconds until a kind whose status weft may not write is tried again


class CarriedStatus(msgspec.Struct, frozen=True):
    """The part of an object's current status in the API server that weft writes: the condition `accepted`, or for a
    kind of the Gateway API the whole `status` (None for other kinds). `apart`: whether the CustomResourceDefinition
    merges conditions by type, so that weft can apply its own condition alone; else the list of conditions is one value
    with one field manager."""

    resource: ResourceKind
    generation: int
    accepted: ObjectCondition | None = None
    apart: bool = False  # each condition has its own field manager; else all conditions are one value
    status: Mapping[str, Any] | None = None  # the whole status, for the Gateway API's kinds


class StatusWriter:
    def __init__(self, client: Client, *, manager: str = MANAGER, per_second: float = PER_SECOND) -> None:
        self._client = client
        self._manager = manager
        self._bucket = _Bucket(per_second, BURST)
        self._carried: dict[ObjectKey, CarriedStatus] = {}
        self._problems: dict[ObjectKey, tuple[Problem, ...]] = {}
        self._wanted_statuses: Mapping[ObjectKey, Wanted] = {}  # wanted statuses of the Gateway API's objects
        self._judged: set[ObjectKey] = set()  # objects that the control plane has checked
        self._due: dict[ObjectKey, None] = {}
        self._delays: dict[ObjectKey, _Delay] = {}
        self._forbidden: set[ResourceKind] = set()
        self._wake = asyncio.Event()

    # Every replica tracks the current state, so that a new leader has it.

    def see(self, statuses: Iterable[tuple[ObjectKey, CarriedStatus | None]]) -> None:
        """Record statuses from the watch; None: the object was deleted."""
        for key, carried in statuses:
            if carried is None:
                self._forget(key)
            else:
                self._carried[key] = carried
                self._consider(key)

    def judge(self, key: ObjectKey, problems: Sequence[Problem] = ()) -> None:
        """Set all current problems of an object; an object without problems is accepted. A status is written only
        for objects for which this was called."""
        self._judged.add(key)
        if problems:
            self._problems[key] = tuple(problems)
        else:
            self._problems.pop(key, None)
        self._consider(key)

    def judge_standard(self, wanted: Mapping[ObjectKey, Wanted]) -> None:
        """Set `wanted`, the statuses that all Gateway API objects should have now."""
        before, self._wanted_statuses = self._wanted_statuses, wanted
        for key, carried in self._carried.items():
            if carried.status is not None and (key not in self._judged or before.get(key) != wanted.get(key)):
                self.judge(key)

    def judge_all(self, problems: Iterable[Problem]) -> None:
        """Call `judge` for every object that was seen, except objects of the Gateway API. Each is judged by those of
        `problems` that are about this object."""
        by_object: dict[str, list[Problem]] = defaultdict(list)
        for problem in problems:
            by_object[problem.where.object].append(problem)
        for key, carried in self._carried.items():
            own = tuple(by_object.get(str(key), ()))
            if carried.status is None and (key not in self._judged or self._problems.get(key, ()) != own):
                self.judge(key, own)

    @property
    def due(self) -> int:
        """The number of objects whose status has to be written."""
        return len(self._due) + sum(each.timer is not None for each in self._delays.values())

    # Only the leader writes.

    async def run(self) -> None:
        """Write statuses that differ from the wanted ones until cancelled."""
        for key in self._carried:
            self._consider(key)
        writing: set[asyncio.Task[None]] = set()
        try:
            while True:
                while self._due and len(writing) < _AT_ONCE:
                    await self._bucket.take()
                    if not self._due:  # the status may have changed while this task waited
                        break
                    key = next(iter(self._due))
                    del self._due[key]
                    task = asyncio.create_task(self._write(key))
                    writing.add(task)
                    task.add_done_callback(writing.discard)
                    task.add_done_callback(lambda _: self._wake.set())
                await self._wake.wait()
                self._wake.clear()
        finally:
            for task in writing:
                task.cancel()
            await asyncio.gather(*writing, return_exceptions=True)

    def _consider(self, key: ObjectKey) -> None:
        if key not in self._carried or key not in self._judged or self._is_right(key):
            self._due.pop(key, None)
            return
        delay = self._delays.get(key)
        if delay is not None and delay.timer is not None:
            if self._basis(key) == delay.basis:
                return
            # The wanted status has changed, so the difference does not mean that another writer overwrote it.
            delay.backoff.reset()
            self._look_by(key, delay)
            return
        self._due[key] = None
        self._wake.set()

    def _basis(self, key: ObjectKey) -> object:
        """Return what an object's status is computed from, without timestamps: the wanted Gateway API status, or the
        object's problems. As long as the result is equal, the status need not change."""
        if self._carried[key].status is not None:
            return self._wanted_statuses.get(key)
        return self._problems.get(key, ())

    def _is_right(self, key: ObjectKey) -> bool:
        carried = self._carried[key]
        if carried.status is not None:
            standard = self._wanted_statuses.get(key)
            allowed = standard is not None and carried.resource not in self._forbidden
            return not allowed or is_right(carried.status, standard, carried.generation)  # type: ignore[arg-type]
        if carried.accepted is None or carried.resource in self._forbidden:
            return carried.resource in self._forbidden
        wanted = self._wanted(key)
        return wanted == msgspec.structs.replace(carried.accepted, last_transition_time=wanted.last_transition_time)

    def _wanted(self, key: ObjectKey) -> ObjectCondition:
        carried = self._carried[key]
        wanted = condition(self._problems.get(key, ()), carried.generation)
        since = carried.accepted.last_transition_time if carried.accepted else None
        same = carried.accepted is not None and carried.accepted.status == wanted.status
        return msgspec.structs.replace(wanted, last_transition_time=since if same and since else _now())

    async def _write(self, key: ObjectKey) -> None:
        carried = self._carried.get(key)
        if carried is None or self._is_right(key):
            return
        basis = self._basis(key)
        try:
            if carried.status is not None:
                await self._replace(key, carried)
            else:
                await self._apply(key, carried, self._wanted(key))
        except ApiError as error:
            if error.not_found:
                return  # the object is gone; the watch will report it
            if error.forbidden:
                self._forbid(carried.resource, error)
                return
            log.log(
                logging.INFO if error.conflict else logging.WARNING, "cannot write the status of %s: %s", key, error
            )
        except KubeError as error:
            log.warning("cannot write the status of %s: %s", key, error)
        # Written or not, the status is checked again: soon at first, then at growing intervals, in case others
        # overwrite it.
        if key in self._carried:
            self._later(key, basis)

    async def _apply(self, key: ObjectKey, carried: CarriedStatus, wanted: ObjectCondition) -> None:
        resource = carried.resource
        patch = _patch(resource, key, [wanted], carried.generation)
        if carried.apart:  # a conflict means that another manager has a condition of this name, and keeps it
            await self._send(resource, key, patch)
            return
        # In Istio's CRDs all conditions are one value: all are sent, and the write fails if the object changed
        # meanwhile.
        current = await self._client.get(resource, key.name, _Whole, namespace=key.namespace)
        others = [each for each in _conditions(current.status) if each.get("type") != CONDITION]
        patch["status"]["conditions"] = [*others, wanted]
        patch["metadata"]["resourceVersion"] = current.metadata.resource_version
        await self._send(resource, key, patch, force=True)

    async def _replace(self, key: ObjectKey, carried: CarriedStatus) -> None:
        """Replace the whole status of the Gateway API object `key`, whose current status is `carried`. Server-side
        apply cannot be used, since the list entries of these statuses have no separate field managers. The write fails
        if the object changed meanwhile."""
        resource, wanted = carried.resource, self._wanted_statuses[key]
        current = await self._client.get(resource, key.name, dict[str, Any], namespace=key.namespace)
        metadata, status = current.get("metadata") or {}, current.get("status")
        if metadata.get("generation", 0) != carried.generation:
            return  # the object has changed and will be judged again
        before = status if isinstance(status, dict) else {}
        body = {**current, "status": status_of(before, wanted, carried.generation, now=_now())}
        path = resource.path(key.namespace, key.name, "status")
        await self._client.raw("PUT", path, query={"fieldManager": self._manager}, body=msgspec.json.encode(body))

    async def _send(
        self, resource: ResourceKind, key: ObjectKey, patch: dict[str, Any], *, force: bool = False
    ) -> None:
        path = resource.path(key.namespace, key.name, "status")
        query = {"fieldManager": self._manager} | ({"force": "true"} if force else {})
        body = msgspec.json.encode(patch)
        await self._client.raw("PATCH", path, query=query, body=body, content_type=PatchType.APPLY)

    def _forbid(self, resource: ResourceKind, error: ApiError) -> None:
        if resource in self._forbidden:
            return
        log.warning("no status is written to %s, because weft is not allowed to: %s", resource, error)
        self._forbidden.add(resource)
        asyncio.get_running_loop().call_later(_FORBIDDEN, self._allow, resource)

    def _allow(self, resource: ResourceKind) -> None:
        self._forbidden.discard(resource)
        for key, carried in self._carried.items():
            if carried.resource == resource:
                self._consider(key)

    def _later(self, key: ObjectKey, basis: object) -> None:
        delay = self._delays.setdefault(key, _Delay())
        if delay.basis != basis:
            delay.backoff.reset()
        delay.basis = basis
        self._look_in(key, delay, delay.backoff.next())

    def _look_by(self, key: ObjectKey, delay: _Delay) -> None:
        """Check the object `key` again in `_FIRST_DELAY` seconds, if its next check is scheduled for later than that;
        do nothing if no check is scheduled. `delay`: its current delay and timer."""
        loop = asyncio.get_running_loop()
        if delay.timer is not None and delay.timer.when() > loop.time() + _FIRST_DELAY:
            self._look_in(key, delay, _FIRST_DELAY)

    def _look_in(self, key: ObjectKey, delay: _Delay, seconds: float) -> None:
        if delay.timer is not None:
            delay.timer.cancel()
        delay.timer = asyncio.get_running_loop().call_later(seconds, self._look_again, key)

    def _look_again(self, key: ObjectKey) -> None:
        if key not in self._carried or self._is_right(key):
            del self._delays[key]
            return
        self._delays[key].timer = None
        self._consider(key)

    def _forget(self, key: ObjectKey) -> None:
        self._carried.pop(key, None)
        self._problems.pop(key, None)
        self._judged.discard(key)
        self._due.pop(key, None)
        delay = self._delays.pop(key, None)
        if delay is not None and delay.timer is not None:
            delay.timer.cancel()


def carried(resource: ResourceKind, item: JudgedObject, *, apart: bool) -> CarriedStatus:
    if resource.group == GROUP:
        try:
            whole = msgspec.json.decode(item.status) if bytes(item.status) else {}
        except (msgspec.MsgspecError, RecursionError, ValueError):
            whole = {}
        return CarriedStatus(resource, item.metadata.generation, status=whole if isinstance(whole, dict) else {})
    try:
        status = msgspec.json.decode(item.status, type=ObjectStatus) if bytes(item.status) else ObjectStatus()
    except (msgspec.MsgspecError, RecursionError, ValueError):
        status = ObjectStatus()  # the status has another shape: another controller wrote it
    ours = next((each for each in status.conditions or () if each.type == CONDITION), None)
    return CarriedStatus(resource, item.metadata.generation, ours, apart)


def condition(problems: Sequence[Problem], generation: int) -> ObjectCondition:
    """Return the `Accepted` condition of an object that has these problems, for this generation of the object."""
    errors = [each for each in problems if each.severity is Severity.ERROR]
    warnings = [each for each in problems if each.severity is not Severity.ERROR]
    message = "\n".join(_sentence(each) for each in (*errors, *warnings)) or "weft has accepted it"
    if len(message) > _LONGEST_MESSAGE:
        message = message[: _LONGEST_MESSAGE - 1] + "…"
    return ObjectCondition(
        type=CONDITION,
        status="False" if errors else "True",
        reason="Invalid" if errors else "AcceptedWithWarnings" if warnings else "Accepted",
        message=message,
        observed_generation=generation,
    )


def _sentence(problem: Problem) -> str:
    """Return the text of a problem without its object, since the text is written to the object's own status."""
    field = f"{problem.where.field}: " if problem.where.field else ""
    hint = f" (hint: {problem.hint})" if problem.hint else ""
    return f"{field}{problem.level}: {problem.what}{hint}"


def _patch(resource: ResourceKind, key: ObjectKey, conditions: list[Any], generation: int) -> dict[str, Any]:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "status": {"conditions": conditions, "observedGeneration": generation},
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class _WholeMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Whole(msgspec.Struct):
    metadata: _WholeMetadata
    status: Any = None


def _conditions(status: Any) -> list[dict[str, Any]]:
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return [each for each in conditions if isinstance(each, dict)] if isinstance(conditions, list) else []


class _Delay:
    """The delay until a written object is checked again; it grows while the wanted status stays the same."""

    def __init__(self) -> None:
        self.backoff = Backoff(_FIRST_DELAY, _MOST_DELAY)
        self.timer: asyncio.TimerHandle | None = None
        self.basis: object = None


class _Bucket:
    """A token bucket that limits writes: `burst` at once, `per_second` on average."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second, self._burst = per_second, float(burst)
        self._left, self._at = float(burst), time.monotonic()

    async def take(self) -> None:
        while True:
            now = time.monotonic()
            self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
            self._at = now
            if self._left >= 1:
                self._left -= 1
                return
            await asyncio.sleep((1 - self._left) / self._per_second)
