"""Watches single Secrets or ConfigMaps, each by its name. Other objects are never read, even if the service account
may read them.

The caller sets the needed names (`want`) whenever they change, and receives documents in batches. Rule: an object
that is no longer wanted is dropped at once. An object that cannot be read becomes a problem and does not affect the
others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import msgspec

from weft.api.document import Change
from weft.base.problem import Problem, Where
from weft.kube.client import Client
from weft.kube.documents import Documents
from weft.kube.objects import WrittenObject
from weft.kube.reflector import Event, WatchTiming, reflect
from weft.kube.resource import CONFIG_MAPS, SECRETS, ResourceKind
from weft.model.names import ObjectKey

log = logging.getLogger("weft.kube")

MOST = 1_000  # watches at most; each needs a stream, and users may name any number of objects
_AFTER_DEFECT = 5.0  # seconds before a watch that failed is started again

Name = tuple[str, str]  # namespace, name


class Sort(msgspec.Struct, frozen=True):
    """A kind of object to watch by name. `named_by`: the kind of the objects that contain these names. `setting`:
    the setting of the installation that allows weft to read the objects."""

    resource: ResourceKind
    named_by: str
    setting: str


GATEWAY_SECRETS = Sort(SECRETS, "Gateway", "gateways.secretsIn")
BACKEND_AUTHORITIES = Sort(CONFIG_MAPS, "BackendTLSPolicy", "gateways.configMapsIn")


class Singles:
    """The watches of single objects of one kind. Only one task may use it."""

    def __init__(self, client: Client, sort: Sort, timing: WatchTiming = WatchTiming()) -> None:  # noqa: B008 - frozen
        self._client, self._sort, self._timing = client, sort, timing
        self._watches: dict[Name, asyncio.Task[None]] = {}
        self._arrived: asyncio.Queue[tuple[Name, tuple[Event[WrittenObject], ...]]] = asyncio.Queue()
        self._gone: list[Change] = []
        self._documents = Documents()
        self._problems: dict[Name, Problem] = {}
        self._told = asyncio.Event()

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(self._problems[name] for name in sorted(self._problems))

    def want(self, names: Iterable[Name]) -> None:
        """Watch exactly the objects with these names from now on; the most important names come first. If there are
        more than `MOST` names, objects that are already watched have priority over new ones. Otherwise a user who
        names a thousand objects could displace the objects of other users."""
        names = tuple(dict.fromkeys(names))
        chosen = set(sorted(names, key=lambda name: name not in self._watches)[:MOST])
        if len(names) > MOST:
            kind = self._sort.resource.kind
            log.warning(
                "objects of the kind %s name %d %ss; only %d are watched", self._sort.named_by, len(names), kind, MOST
            )
        for name in self._watches.keys() - chosen:
            self._watches.pop(name).cancel()
            self._problems.pop(name, None)
            self._gone.append(self._documents.gone(self._key(name)))
        for name in sorted(chosen - self._watches.keys()):
            self._watches[name] = asyncio.create_task(self._watch(name))
        if self._gone:
            self._told.set()

    async def changes(self) -> tuple[Change, ...]:
        """Wait until an object or `problems` has changed since the last call, and return the changes of objects. An
        object that cannot be read causes no change, but a problem in `problems`; so the result may be empty."""
        await self._told.wait()
        self._told.clear()
        changes, self._gone = self._gone, []
        while not self._arrived.empty():
            name, events = self._arrived.get_nowait()
            if name in self._watches:
                changes += (change for event in events if (change := self._change(name, event)) is not None)
        return tuple(changes)

    async def close(self) -> None:
        watches = list(self._watches.values())
        self._watches.clear()
        for watch in watches:
            watch.cancel()
        if watches:
            await asyncio.wait(watches)

    def _change(self, name: Name, event: Event[WrittenObject]) -> Change | None:
        if (event.namespace, event.name) != name:
            return None  # an object that was not requested
        key = self._key(name)
        if event.object is None:
            return self._documents.gone(key)
        return self._documents.change(self._sort.resource, key, event.object)

    async def _watch(self, name: Name) -> None:
        namespace, called = name
        sort, kind = self._sort, self._sort.resource.kind

        def met(problem: Problem | None) -> None:
            if problem is None:
                self._problems.pop(name, None)
            else:
                hint = f"allow weft to read the {kind}s there: weft install --set {sort.setting}=[{namespace}]"
                what = f"this {kind}, which a {sort.named_by} names, cannot be read: {problem.what}"
                self._problems[name] = Problem(Where(object=str(self._key(name))), what, hint)
            self._told.set()

        while True:
            try:
                batches = reflect(
                    self._client,
                    sort.resource,
                    WrittenObject,
                    namespace=namespace,
                    fields=f"metadata.name={called}",
                    on_problem=met,
                    timing=self._timing,
                )
                async for batch in batches:
                    self._arrived.put_nowait((name, batch))
                    self._told.set()
            except Exception:  # a bug in weft: the other watches continue
                log.exception("cannot watch %s; its last state is kept", self._key(name))
            await asyncio.sleep(_AFTER_DEFECT)

    def _key(self, name: Name) -> ObjectKey:
        return ObjectKey(self._sort.resource.kind, *name)
