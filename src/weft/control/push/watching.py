"""Who sees which host, and how: places, what looks the same from there to all, and groups, what each sees in its own
way. `push.py` says whose look is due, and on which hosts; what they see by now leaves as updates.

Rule: what nobody sees any more is forgotten, with what translation made of it and the problems that were found in it.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping

from weft.control.problems import Problems
from weft.control.push.compiled import NOTHING, Compiled, Update
from weft.control.push.demand import Demand, Watcher
from weft.control.push.place import Place
from weft.control.push.translation import Made, Translation
from weft.mesh.mesh import Mesh
from weft.model.group import Group
from weft.translate.built import Built
from weft.translate.findings import problems_of
from weft.translate.view import depends_on_labels, service_view

log = logging.getLogger(__name__)


class Watching:
    def __init__(self, mesh: Mesh, demand: Demand, translation: Translation, problems: Problems) -> None:
        self._mesh, self._demand, self._translation, self._problems = mesh, demand, translation, problems
        self._by_host: dict[str, dict[Watcher, Made]] = defaultdict(dict)
        self._unchecked = translation.fresh

    def of(self, host: str) -> Mapping[Watcher, Made]:
        return self._by_host.get(host, {})

    def seen(self, host: str, group: Group, place: Place) -> Made | None:
        """As a group sees it, for itself or with all that look from its place."""
        watching = self.of(host)
        return watching.get(group) or watching.get(place)

    def refresh_place(self, place: Place, hosts: Iterable[str], group: Group) -> list[Update]:
        """`group`: any that looks from there."""
        seen: dict[str, Made | None] = {}
        for host in hosts:
            try:
                is_seen = not place.on_demand or host in place.told
                held = place.telling.held
                view = service_view(self._mesh, group, place.scope, host, held=held) if is_seen else None
                by_labels = view is not None and depends_on_labels(self._mesh, view, place.scope.namespace)
                seen[host] = None if view is None or by_labels else self._translation.make(view, place.settings)
            except Exception:  # one host that translation chokes on must not take the others' changes along
                log.exception("cannot translate %s for %s; it stays as it was", host, group)
            else:
                (place.by_labels.add if by_labels else place.by_labels.discard)(host)
        return self._see(place, place.compiled, seen)

    def refresh_group(
        self, group: Group, place: Place, compiled: Compiled, hosts: Iterable[str], touched: frozenset[str]
    ) -> list[Update]:
        """What a group sees in its own way, and no longer sees so. `touched`: what may be another now, seen or not."""
        seen: dict[str, Made | None] = {}
        if place.on_demand:
            hosts = {*hosts, *self._demand.move_group(group, place, touched.union(hosts))}
        else:
            hosts = {*hosts, *self._demand.seen_by(group)}
            self._demand.forget(group)
        for host in hosts:
            try:
                is_own = host in place.by_labels or host in self._demand.seen_by(group)
                held = place.telling.held
                view = service_view(self._mesh, group, place.scope, host, held=held) if is_own else None
                seen[host] = self._translation.make(view, place.settings) if view is not None else None
            except Exception:
                log.exception("cannot translate %s for %s; it stays as it was", host, group)
        return self._see(group, compiled, seen)

    def _see(self, watcher: Watcher, compiled: Compiled, seen: dict[str, Made | None]) -> list[Update]:
        """What is seen of these hosts from now on; None where nothing is."""
        started = time.thread_time()
        assignments: dict[str, tuple[Built, ...]] = {}
        for host, made in tuple(seen.items()):
            try:
                assignments[host] = self._translation.assignments(made)
            except Exception:
                log.exception("cannot tell who answers for %s; it stays as it was", host)
                del seen[host]
                continue
            watching = self._by_host[host]
            before = watching.get(watcher)
            if before is not None and before is not made:
                self._unchecked.add(host)  # it may have been the last one to see it that way
            if made is None:
                watching.pop(watcher, None)
            else:
                watching[watcher] = made
        contributions = {host: made.contribution if made else NOTHING for host, made in seen.items()}
        updates = [compiled.contribute(contributions), compiled.assign(assignments)]
        self._translation.spent += time.thread_time() - started
        return updates

    def forget(self, watcher: Watcher, compiled: Compiled) -> None:
        """It sees nothing any more."""
        for host in compiled.hosts:
            self._by_host[host].pop(watcher, None)
            self._unchecked.add(host)

    def check(self, changed: Iterable[str] = ()) -> None:
        """Say what translation could not do as its author meant it, for whoever sees it; forget what nobody sees."""
        self._unchecked.update(changed)
        for host in self._unchecked:
            seen = dict.fromkeys(self.of(host).values())
            views = dict.fromkeys(made.view for made in seen)
            found = {problem for view in views for problem in problems_of(view, self._mesh)}
            self._problems.put(("translation", host), sorted(found, key=str))
            self._translation.keep(host, seen)
            if not seen:
                self._by_host.pop(host, None)
        self._unchecked.clear()
