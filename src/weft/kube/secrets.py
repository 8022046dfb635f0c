"""Single Secrets, each watched by its own name: nobody is told of any other, whatever the account may read.

Who knows which are needed says so (`want`), as often as that changes; documents for `api/` leave, batch by batch. Rule:
what is wanted no more is forgotten at once, and a Secret that cannot be read is told of and stops no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from weft.api.document import Change
from weft.base.problem import Problem, Where
from weft.kube.client import Client
from weft.kube.documents import Documents
from weft.kube.objects import Written
from weft.kube.reflector import Event, Timing, reflect
from weft.kube.resource import SECRETS
from weft.model.names import ObjectKey

log = logging.getLogger("weft.kube")

MOST = 1_000  # watches; each is a connection's stream, and a Gateway may name as many as it likes
_AFTER_DEFECT = 5.0  # seconds before a watch that failed is started again

Name = tuple[str, str]  # namespace, name


class Secrets:
    """Belongs to one task."""

    def __init__(self, client: Client, timing: Timing = Timing()) -> None:  # noqa: B008 - frozen
        self._client, self._timing = client, timing
        self._watches: dict[Name, asyncio.Task[None]] = {}
        self._arrived: asyncio.Queue[tuple[Name, tuple[Event[Written], ...]]] = asyncio.Queue()
        self._gone: list[Change] = []
        self._documents = Documents()
        self._problems: dict[Name, Problem] = {}
        self._told = asyncio.Event()

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(self._problems[name] for name in sorted(self._problems))

    def want(self, names: Collection[Name]) -> None:
        """These and no others, from now on. Of too many, those stay that are watched: whoever names a thousand more
        must not take the certificates of everybody else away."""
        chosen = set(sorted(names, key=lambda name: (name not in self._watches, name))[:MOST])
        if len(names) > MOST:
            log.warning("Gateways name %d Secrets; %d are watched", len(names), MOST)
        for name in self._watches.keys() - chosen:
            self._watches.pop(name).cancel()
            self._problems.pop(name, None)
            self._gone.append(self._documents.gone(_key(name)))
        for name in sorted(chosen - self._watches.keys()):
            self._watches[name] = asyncio.create_task(self._watch(name))
        if self._gone:
            self._told.set()

    async def changes(self) -> tuple[Change, ...]:
        """What has become of them since the last call; waits if it is nothing. Of what cannot be read, nothing comes:
        `problems` is another then."""
        await self._told.wait()
        self._told.clear()
        found, self._gone = self._gone, []
        while not self._arrived.empty():
            name, events = self._arrived.get_nowait()
            if name in self._watches:
                found += (change for event in events if (change := self._change(name, event)) is not None)
        return tuple(found)

    async def close(self) -> None:
        watches = list(self._watches.values())
        self._watches.clear()
        for watch in watches:
            watch.cancel()
        if watches:
            await asyncio.wait(watches)

    def _change(self, name: Name, event: Event[Written]) -> Change | None:
        if (event.namespace, event.name) != name:
            return None  # nobody asked for it
        key = _key(name)
        return self._documents.gone(key) if event.object is None else self._documents.change(SECRETS, key, event.object)

    async def _watch(self, name: Name) -> None:
        namespace, called = name

        def met(problem: Problem | None) -> None:
            if problem is None:
                self._problems.pop(name, None)
            else:
                hint = f"let it read the Secrets there: weft install --set gateways.secretsIn=[{namespace}]"
                what = f"this Secret, which a Gateway names, cannot be read: {problem.what}"
                self._problems[name] = Problem(Where(object=str(_key(name))), what, hint)
            self._told.set()

        while True:
            try:
                batches = reflect(
                    self._client,
                    SECRETS,
                    Written,
                    namespace=namespace,
                    fields=f"metadata.name={called}",
                    on_problem=met,
                    timing=self._timing,
                )
                async for batch in batches:
                    self._arrived.put_nowait((name, batch))
                    self._told.set()
            except Exception:  # a defect of ours: the others go on
                log.exception("cannot watch %s; it stays as it was", _key(name))
            await asyncio.sleep(_AFTER_DEFECT)


def _key(name: Name) -> ObjectKey:
    return ObjectKey("Secret", *name)
