"""Single objects of a cluster that others name, and their way into the mesh: they are watched as long as somebody names
them, and no other is ever read.

Who knows what is named brings it (`wanted`), and says when to look again (`look`); what arrives is handed to `take`.
Rule: a defect of ours in looking once, or in taking one batch in, does not stop the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from weft.api.document import Change
from weft.base.problem import Problem
from weft.kube.singles import Name, Singles
from weft.model.names import ObjectKey

log = logging.getLogger("weft.cluster.named_objects")

_QUIET = 0.1  # seconds in which further changes are awaited before anybody looks


class NamedObjects:
    def __init__(
        self,
        objects: Singles,
        wanted: Callable[[], Iterable[Name]],
        take: Callable[[tuple[Change, ...]], None],
        note: Callable[[tuple[Problem, ...]], None],
    ) -> None:
        """`note`: is told what cannot be read, each time all of it."""
        self._objects, self._wanted, self._take, self._note = objects, wanted, take, note
        self._changed = asyncio.Event()

    def look(self) -> None:
        """What is named may be another."""
        self._changed.set()

    def look_if(self, concerns: Callable[[ObjectKey], bool]) -> Callable[[frozenset[ObjectKey]], None]:
        """For `ControlPlane.on_change`: look when an object has changed that may name others."""

        def on_change(changed: frozenset[ObjectKey]) -> None:
            if any(map(concerns, changed)):
                self.look()

        return on_change

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._choose_all())
                tasks.create_task(self._take_all())
        finally:
            await self._objects.close()

    async def _choose_all(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(_QUIET)
            self._changed.clear()
            try:
                self._objects.want(self._wanted())
            except Exception:  # a defect of ours: what is watched is watched on
                log.exception("nobody knows which objects are named")

    async def _take_all(self) -> None:
        while True:
            changes = await self._objects.changes()
            try:
                self._note(self._objects.problems)
                if changes:
                    self._take(changes)
            except Exception:  # a defect of ours: what comes next is taken in
                log.exception("%s could not be taken in", ", ".join(sorted(str(each.key) for each in changes)))
