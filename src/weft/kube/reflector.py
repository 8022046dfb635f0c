"""Watches one kind of object forever: reports first all objects, then every change, whatever failures the API server
has.

The input is a ResourceKind and a type, the output batches of events. Objects are listed by WatchList where the
server supports it, else by pages. A watch continues from its resourceVersion; after 410, the objects are listed
again and compared, so that objects that were deleted meanwhile are reported as deleted. Rule: the reflector never
ends by itself, and an object is reported as deleted only if the API server certainly does not have it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Generic, TypeVar

import msgspec

from weft.base.backoff import Backoff
from weft.base.problem import Problem, Where
from weft.kube.answers import ApiStatus
from weft.kube.client import PAGE, Client
from weft.kube.error import ApiError, ApiUnavailable, KubeError
from weft.kube.resource import ResourceKind

log = logging.getLogger("weft.kube")

T = TypeVar("T")
Key = tuple[str, str]  # namespace, name
_Batch = tuple["Event[T]", ...]
_LONGEST_WAIT = 60.0  # seconds to wait at most, whatever Retry-After the server sends


class Event(msgspec.Struct, Generic[T], frozen=True):
    """A change of one object: its namespace, its name, and its current state, or None if it was deleted."""

    namespace: str
    name: str
    object: T | None = None


class WatchTiming(msgspec.Struct, frozen=True):
    """Timing of a watch, in seconds. The server ends each watch after `longest_watch` to twice that time, so that a
    broken watch cannot last forever. The server sends a bookmark about every minute, so silence for longer than
    `inactivity` (in a WatchList, before all objects have arrived: `initial_silence`) means that the server is
    unreachable. `absent`: the time between checks for a kind that the server does not have. After a failure the next
    attempt waits `first_delay`, then longer, up to `most_delay`; a watch that lasted for `steady` counts as a success.
    `page`: objects per page of a list."""

    longest_watch: float = 300.0  # randomly up to twice as long, so that not all watches begin at once
    inactivity: float = 150.0
    initial_silence: float = 15.0  # silence in a WatchList; an old server takes it for a plain watch
    absent: float = 10.0  # between checks for a kind that the server does not have
    first_delay: float = 0.2
    most_delay: float = 10.0
    steady: float = 10.0  # a watch that lasted this long is not a failure, however it ended
    page: int = PAGE


async def reflect(
    client: Client,
    resource: ResourceKind,
    type_: type[T],
    *,
    namespace: str = "",
    labels: str = "",
    fields: str = "",
    on_problem: Callable[[Problem | None], None] | None = None,
    timing: WatchTiming = WatchTiming(),  # noqa: B008 - frozen
) -> AsyncGenerator[tuple[Event[T], ...], None]:
    """Watch a kind forever and yield batches of events. The first batch has all objects; it is empty if the server has
    no such kind, and the kind is then waited for. Each later batch has what changed: one event per object, with its
    last state. Close the generator to stop.

    `on_problem` is called with the reason why no events arrive (no answer, not allowed), and with None when they arrive
    again. An object that does not fit `type_` is logged, and its last valid state is kept. `labels` and `fields`:
    selectors.
    """
    selection = {"namespace": namespace, "labels": labels, "fields": fields}
    reflection = _Reflection(client, resource, type_, selection, timing)
    trouble = _Trouble(resource, on_problem)
    backoff = Backoff(timing.first_delay, timing.most_delay)
    clock = asyncio.get_running_loop().time
    while True:
        began, wait = clock(), 0.0
        try:
            async with aclosing(reflection.follow()) as batches:
                async for batch in batches:
                    trouble.over()
                    if batch is not None:
                        yield batch
        except KubeError as error:
            first = not reflection.told
            if isinstance(error, ApiError) and error.not_found and (gone := await reflection.absent()) is not None:
                trouble.over()
                backoff.reset()
                if gone or first:
                    yield gone
                await asyncio.sleep(timing.absent * random.uniform(0.7, 1.0))  # noqa: S311 - spreading load, not a secret
                continue
            trouble.met(error)
            wait = min(getattr(error, "retry_after", 0.0), _LONGEST_WAIT) or timing.first_delay
        if clock() - began > timing.steady:
            backoff.reset()
        elif not wait and clock() - began > 1.0:
            continue  # the server ended the watch, or a new list is needed; a shorter watch counts as a failure
        await asyncio.sleep(max(backoff.next(), wait))


class _Reflection(Generic[T]):
    """The state of one reflector: the objects it has reported, and the resourceVersion of the last report."""

    def __init__(
        self, client: Client, resource: ResourceKind, type_: type[T], selection: dict[str, str], timing: WatchTiming
    ) -> None:
        self.told = False  # the first batch was yielded
        self._client, self._resource, self._selection, self._timing = client, resource, selection, timing
        self._known: dict[Key, int] = {}  # the reported objects, and the state of each (`state` of its head)
        self._version = ""  # the watch continues from here; "": a list is due
        self._offers_watch_list = True
        self._broke_off = False  # the last watch ended with a connection error
        self._decode: Callable[[Any], T] = msgspec.json.Decoder(type_).decode

    async def follow(self) -> AsyncGenerator[_Batch[T] | None, None]:
        """Run one watch, after a list if there is no version to continue from. Yields batches of events, or None
        when the watch works and nothing has changed."""
        if self._broke_off and self._version and await self._went_back():
            log.warning("%s: the API server's data is older than before; listing again", self._resource)
            self._version = ""
        try:
            if not self._version and not self._offers_watch_list:
                yield self._replaced(await self._list())
            async with aclosing(self._watch()) as batches:
                async for batch in batches:
                    self._broke_off = False
                    yield batch
        except ApiUnavailable:
            self._broke_off = True
            raise
        except ApiError as error:
            if not self._version and self._offers_watch_list and error.status in (400, 422):
                self._offers_watch_list = False
            elif error.expired or any("ResourceVersionTooLarge" in cause for cause in error.causes):
                log.info("%s: the API server no longer has version %s; listing again", self._resource, self._version)
                self._version = ""
            else:
                raise

    async def absent(self) -> _Batch[T] | None:
        """Called after a 404 of a list or watch. If the server certainly does not serve this kind, return a batch
        that reports all known objects of the kind as deleted; None if that is not certain."""
        try:
            if await self._client.exists(self._resource):
                return None
        except KubeError:
            return None
        return self._replaced(_Snapshot(""))

    async def _went_back(self) -> bool:
        """Whether the server's current resourceVersion is older than the last one that this reflector has seen. That is
        the case if etcd was restored from a backup: a watch from the newer version would then be silent until etcd
        reaches that version again."""
        async with aclosing(self._client.pages(self._resource, msgspec.Raw, limit=1, **self._selection)) as pages:
            async for page in pages:
                before, now = self._version, page.resource_version
                return before.isdigit() and now.isdigit() and int(now) < int(before)
        return False

    async def _list(self) -> _Snapshot[T]:
        snapshot: _Snapshot[T] = _Snapshot("")
        pages = self._client.pages(self._resource, msgspec.Raw, limit=self._timing.page, **self._selection)
        async with aclosing(pages):
            async for page in pages:
                snapshot.version = page.resource_version
                for raw in page.items:
                    head = _decoded(_HEAD, raw)
                    snapshot.found[head.key] = (head.state, self._event(head, raw))
        return snapshot

    async def _watch(self) -> AsyncGenerator[_Batch[T] | None, None]:
        timing = self._timing
        seconds = timing.longest_watch * random.uniform(1.0, 2.0)  # noqa: S311
        options = {"allowWatchBookmarks": "true", "timeoutSeconds": str(max(1, round(seconds)))}
        snapshot: _Snapshot[T] | None = None
        if self._version:
            options["resourceVersion"] = self._version
        else:
            options |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            snapshot = _Snapshot("")
        stream = self._client.watch(self._resource, options=options, inactivity=timing.inactivity, **self._selection)
        async with aclosing(stream):
            while True:
                silence = asyncio.timeout(None if snapshot is None else timing.initial_silence)
                try:
                    async with silence:
                        lines = await anext(stream, None)
                except TimeoutError as error:
                    self._offers_watch_list = False  # every server supports lists in pages
                    raise ApiUnavailable("the WatchList has stalled", where=str(self._resource)) from error
                if lines is None:
                    return
                batch: dict[Key, Event[T]] = {}
                failure: KubeError | None = None
                for line in lines:
                    try:
                        ended = self._take(line, batch, snapshot)
                    except KubeError as error:  # raised later, after the events before this line were yielded
                        failure = error
                        break
                    if ended and snapshot is not None:
                        yield self._replaced(snapshot)
                        snapshot = None
                if batch:
                    yield tuple(batch.values())
                elif snapshot is None:
                    yield None
                if failure is not None:
                    raise failure

    def _take(self, line: bytes, batch: dict[Key, Event[T]], snapshot: _Snapshot[T] | None) -> bool:
        """Process one line of a watch. While the first objects still arrive (WatchList), `snapshot` is set and the
        object is added to it; later `snapshot` is None and the change is added to `batch`. Returns whether the line is
        the bookmark that ends the first objects. Raises the server's error if the line contains one."""
        if not line:
            return False
        message = _decoded(_LINE, line)
        if message.type == "ERROR":
            raise _decoded(_STATUS, message.object).error(request=f"watch {self._resource}")
        if message.type == "BOOKMARK":
            mark = _decoded(_BOOKMARK, message.object).metadata
            ended = (mark.annotations or {}).get("k8s.io/initial-events-end") == "true"
            if snapshot is None:
                self._version = mark.resource_version or self._version
            elif ended:
                snapshot.version = mark.resource_version
            return ended
        head = _decoded(_HEAD, message.object)
        if snapshot is not None:
            if message.type == "DELETED":
                snapshot.found.pop(head.key, None)
            else:
                snapshot.found[head.key] = (head.state, self._event(head, message.object))
            return False
        if message.type == "DELETED":
            self._known.pop(head.key, None)
            batch[head.key] = Event(*head.key)
        elif (event := self._event(head, message.object)) is not None:
            self._known[head.key] = head.state
            batch[head.key] = event
        self._version = head.metadata.resource_version or self._version
        return False

    def _replaced(self, snapshot: _Snapshot[T]) -> _Batch[T]:
        """Return the events by which the objects that were reported before become those of the snapshot (additions,
        changes and deletions), and take over the snapshot's version, from which the watch continues."""
        known, listed = self._known, snapshot.found
        gone = [key for key in known if key not in listed]
        for key in gone:
            del known[key]
        batch: list[Event[T]] = [Event(*key) for key in gone]
        for key, (state, event) in listed.items():
            if event is not None and known.get(key) != state:
                known[key] = state
                batch.append(event)
        self._version, self.told = snapshot.version, True
        return tuple(batch)

    def _event(self, head: _Head, raw: msgspec.Raw) -> Event[T] | None:
        try:
            return Event(*head.key, self._decode(raw))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            name = "/".join(part for part in head.key if part)
            log.warning("%s %s: cannot be decoded; its last valid state is kept: %s", self._resource.kind, name, error)
            return None


class _Trouble:
    """Reports to `on_problem` why no events arrive, once per reason."""

    def __init__(self, resource: ResourceKind, tell: Callable[[Problem | None], None] | None) -> None:
        self._resource, self._tell = resource, tell
        self._now: Problem | None = None

    def met(self, error: KubeError) -> None:
        what, hint = f"{self._resource} cannot be watched: {error.problem.what}", error.problem.hint
        if isinstance(error, ApiError) and error.forbidden:
            hint = f"the role of this account needs the verbs list and watch on {self._resource}"
        problem = Problem(Where(object=error.problem.where.object), what, hint)
        if problem == self._now:
            return
        self._now = problem
        log.warning("%s; the last known objects are kept", problem)
        if self._tell is not None:
            self._tell(problem)

    def over(self) -> None:
        if self._now is None:
            return
        self._now = None
        log.info("%s are watched again", self._resource)
        if self._tell is not None:
            self._tell(None)


class _Snapshot(Generic[T]):
    """All objects at one version. An object that could not be decoded has no event, but counts as existing."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.found: dict[Key, tuple[int, Event[T] | None]] = {}


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Head(msgspec.Struct):
    metadata: _Metadata

    @property
    def key(self) -> Key:
        return (self.metadata.namespace, self.metadata.name)

    @property
    def state(self) -> int:
        """A number that differs between states of objects: the hash of the object's uid and resourceVersion. No two
        states have the same resourceVersion, since resourceVersions are counted over the whole store."""
        return hash((self.metadata.uid, self.metadata.resource_version))


class _Mark(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Bookmark(msgspec.Struct):
    metadata: _Mark


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


_HEAD = msgspec.json.Decoder(_Head)
_LINE = msgspec.json.Decoder(_Line)
_STATUS = msgspec.json.Decoder(ApiStatus)
_BOOKMARK = msgspec.json.Decoder(_Bookmark)


def _decoded(decoder: msgspec.json.Decoder[Any], raw: Any) -> Any:
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ApiUnavailable(f"the response is not an API server's: {error}") from error
