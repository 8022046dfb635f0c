"""Watches single objects of a cluster that other objects name, such as Secrets. An object is watched as long as another
object names it.

The owner provides the names (`wanted`) and calls `look` when they may have changed; changes are passed to `take`. Rule:
an exception in `wanted` or `take` is logged and does not stop later changes.
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

_QUIET = 0.1  # seconds to wait for further changes before `wanted` is called


class NamedObjects:
    def __init__(
        self,
        objects: Singles,
        wanted: Callable[[], Iterable[Name]],
        take: Callable[[tuple[Change, ...]], None],
        note: Callable[[tuple[Problem, ...]], None],
    ) -> None:
        """`wanted`: returns the names of the objects to watch. `take`: is called with the changes of these objects.
        `note`: is called with all current problems of reading the objects."""
        self._objects, self._wanted, self._take, self._note = objects, wanted, take, note
        self._changed = asyncio.Event()

    def look(self) -> None:
        """Call `wanted` again soon, because the names may have changed."""
        self._changed.set()

    def look_if(self, concerns: Callable[[ObjectKey], bool]) -> Callable[[frozenset[ObjectKey]], None]:
        """Return a callback for `ControlPlane.on_change` that calls `look` if `concerns` is true for any changed
        object."""

        def on_change(changed: frozenset[ObjectKey]) -> None:
            if any(map(concerns, changed)):
                self.look()

        return on_change

    async def run(self) -> None:
        """Watch the named objects until cancelled."""
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
            except Exception:  # a defect in weft: the current watches continue
                log.exception("cannot compute which objects to watch")

    async def _take_all(self) -> None:
        while True:
            changes = await self._objects.changes()
            try:
                self._note(self._objects.problems)
                if changes:
                    self._take(changes)
            except Exception:  # a defect in weft: later changes are still applied
                log.exception("cannot apply %s", ", ".join(sorted(str(each.key) for each in changes)))
