"""Finds which of several objects a proxy rejects. The suspects are tried by halves, each time in a resource without
effect (`translate/suspects.py`), until a single suspect is rejected. A group has one search at a time; further
searches wait.

Input: the ACKs and NACKs of proxies (`accepted`, `refused`). Output: the objects at fault.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Hashable

from weft.model.group import Group
from weft.translate.built import Built
from weft.translate.suspects import TRIAL, Lineup, Suspect
from weft.xds.snapshot import Snapshots
from weft.xds.stream import NackedResource

_HEADING = re.compile(rf"Error adding/updating \w+\(s\) {TRIAL}: ")
_MOST = 10_000  # suspects; with more, there is no search, and the problem names all of them

Guilty = tuple[tuple[Suspect, str], ...]  # suspects at fault, each with the proxy's error message about it
Found = Callable[[Guilty], None]


class _Case:
    def __init__(self, topic: Hashable, lineup: Lineup, found: Found) -> None:
        self.topic, self.lineup, self.found = topic, lineup, found
        every = tuple(range(len(lineup.suspects)))
        half = len(every) // 2
        # The first trials are the two halves: all suspects together were rejected already.
        self.waiting = [each for each in (every[half:], every[:half]) if each]
        self.guilty: dict[Suspect, str] = {}
        self.trying: tuple[int, ...] = ()
        self.trial: Built | None = None
        self.is_told = False  # whether `found` was called
        self.is_refused = False  # whether the last trial was rejected


class Inquiries:
    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._cases: dict[Group, deque[_Case]] = {}  # the first case is the current one

    def open(self, group: Group, topic: Hashable, lineup: Lineup | None, found: Found) -> None:
        """Start a search among the suspects of `lineup`. There is no search without a lineup, or with too many suspects
        (`_MOST`). `topic`: identifies the search, as for `close`; an earlier search for the same topic is ended.
        `found` is called once with the suspects at fault, unless the search is closed before. It is called with no
        suspects if every suspect is accepted when tried alone."""
        if lineup is None or not 0 < len(lineup.suspects) <= _MOST:
            return
        self.close(group, topic)
        cases = self._cases.setdefault(group, deque())
        cases.append(_Case(topic, lineup, found))
        if len(cases) == 1:
            self._go_on(group)

    def close(self, group: Group, topic: Hashable) -> None:
        """End the search for a topic without a result."""
        cases = self._cases.get(group, deque())
        closed = next((case for case in cases if case.topic == topic), None)
        if closed is None:
            return
        is_under_way = closed is cases[0]
        cases.remove(closed)
        if is_under_way:
            self._end(group, closed)

    def forget(self, group: Group) -> None:
        self._cases.pop(group, None)

    def refused(self, group: Group, resource: NackedResource) -> None:
        """Continue the search after a proxy of the group rejected a trial (`is_trial`)."""
        case = self._under_way(group)
        if case is None or case.trial is None or case.trial.version != resource.version:
            return
        suspects, case.is_refused = case.trying, True
        if len(suspects) == 1:
            case.guilty.setdefault(case.lineup.suspects[suspects[0]], resource.message)
        elif suspects:
            half = len(suspects) // 2
            case.waiting += (suspects[half:], suspects[:half])
        self._go_on(group)

    def accepted(self, group: Group) -> None:
        """Continue the search if a proxy of the group has accepted the current trial."""
        case = self._under_way(group)
        if case is not None and case.trial is not None and self._is_taken(group, case.trial):
            case.is_refused = False
            self._go_on(group)

    def _go_on(self, group: Group) -> None:
        case = self._under_way(group)
        while case is not None:
            if not case.waiting and (case.is_told or not case.is_refused):
                self._cases[group].popleft()
                self._end(group, case)
                self._tell(case)
                return
            if not case.waiting:
                # Envoy's config_dump shows the last rejected resource until Envoy accepts another version. A last,
                # empty trial keeps a rejected trial from staying there.
                self._tell(case)
            case.trying = case.waiting.pop() if case.waiting else ()
            case.trial = case.lineup.trial(case.trying)
            if not self._is_taken(group, case.trial):
                self._snapshots.forgive(group, case.trial.type_url, (TRIAL,))
                self._snapshots.update(group, {case.trial.type_url: {TRIAL: case.trial}})
                return

    def _tell(self, case: _Case) -> None:
        if not case.is_told:
            case.is_told = True
            case.found(tuple(case.guilty.items()))

    def _end(self, group: Group, case: _Case) -> None:
        if case.trial is not None:
            self._snapshots.update(group, {case.trial.type_url: {TRIAL: None}})
            self._snapshots.forgive(group, case.trial.type_url, (TRIAL,))
        if self._cases.get(group):
            self._go_on(group)
        else:
            self._cases.pop(group, None)

    def _under_way(self, group: Group) -> _Case | None:
        cases = self._cases.get(group)
        return cases[0] if cases else None

    def _is_taken(self, group: Group, trial: Built) -> bool:
        accepted = self._snapshots.accepted(group, trial.type_url, TRIAL)
        return accepted is not None and accepted.version == trial.version


def without_heading(message: str) -> str:
    """Return a proxy's error message without the name of the trial resource."""
    return _HEADING.sub("", message)


def is_trial(resource: NackedResource) -> bool:
    return resource.name == TRIAL
