"""Analyzes the whole mesh while it runs. Each change calls `wake`; the findings of an analysis replace those of the
last one in the list of problems.

Rule: the analysis does not slow down pushes. It waits until there are no changes for a while, runs on another thread
with immutable values, and then pauses ten times as long as it ran.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from weft.analyze.facts import facts_of
from weft.analyze.findings import findings
from weft.base.problem import Problem
from weft.control.problems import Problems
from weft.files.problem_lines import with_lines
from weft.mesh.mesh import Mesh
from weft.model.names import ObjectKey
from weft.model.settings import Settings
from weft.model.value import Value

log = logging.getLogger(__name__)

QUIET = 0.5  # seconds without a change before an analysis starts
MOST = 3.0  # seconds after the first change, when an analysis starts even if changes continue
REST = 10  # pause after an analysis, as a multiple of its duration
MOST_OBJECTS = 200_000  # with more objects, no analysis runs: even listing them would delay a push

TOPIC = "analysis"


class Analysis:
    def __init__(
        self,
        mesh: Mesh,
        problems: Problems,
        refused: Callable[[], dict[ObjectKey, tuple[Value, ...]]],
        *,
        quiet: float = QUIET,
        egress: bool = False,
    ) -> None:
        """`refused`: returns the rejected objects, each with the values that could still be parsed from it. `quiet`:
        how many seconds without changes an analysis waits for. `egress`: whether the pods of a mesh on one machine can
        reach hosts outside the mesh."""
        self._mesh = mesh
        self._problems = problems
        self._refused = refused
        self._quiet, self._egress = quiet, egress
        self._timer: asyncio.TimerHandle | None = None
        self._working: asyncio.Future[tuple[Problem, ...]] | None = None
        self._woken = False  # whether `wake` was called during the analysis
        self._first = 0.0  # time of the first change that is not analyzed yet
        self._rest_until = 0.0
        self._closed = False

    def wake(self) -> None:
        """Schedule an analysis, because objects have changed."""
        if self._closed or self._working is not None:
            self._woken = True
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._timer is None:
            self._first = now
        else:
            self._timer.cancel()
        at = max(min(now + self._quiet, self._first + MOST), self._rest_until)
        self._timer = loop.call_at(at, self._begin)

    @property
    def pending(self) -> bool:
        return self._timer is not None or self._working is not None

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._timer = None
        objects = [values for _, values in self._mesh.values()]
        if len(objects) > MOST_OBJECTS:
            log.info("the mesh is not analyzed, because it has more than %d objects", MOST_OBJECTS)
            self._problems.put(TOPIC, ())
            return
        # A rejected object still counts as the target of references, unless a valid version is in force.
        refused = dict(self._refused())
        meant = [values for key, values in refused.items() if not self._mesh.get(key)]
        started = time.monotonic()
        work = asyncio.get_running_loop().run_in_executor(
            None, partial(_work, self._mesh.settings, objects, meant, frozenset(refused), egress=self._egress)
        )
        self._working = work
        work.add_done_callback(lambda done: self._end(done, started))

    def _end(self, done: asyncio.Future[tuple[Problem, ...]], started: float) -> None:
        self._working = None
        if self._closed or done.cancelled():
            return
        self._rest_until = asyncio.get_running_loop().time() + REST * (time.monotonic() - started)
        error = done.exception()
        if error is not None:
            log.error("the analysis of the mesh failed; the earlier findings stay", exc_info=error)
        else:
            self._problems.put(TOPIC, done.result())
        if self._woken:
            self._woken = False
            self.wake()


def _work(
    settings: Settings,
    objects: list[tuple[Value, ...]],
    meant: list[tuple[Value, ...]],
    refused: frozenset[ObjectKey],
    *,
    egress: bool,
) -> tuple[Problem, ...]:
    facts = facts_of(settings, objects, egress=egress)
    if not meant:
        return with_lines(findings(facts, refused))
    return with_lines(findings(facts_of(settings, [*objects, *meant], egress=egress), refused, in_force=facts))
