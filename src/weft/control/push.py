"""Where the mesh meets the streams: what a change touched becomes new resources for just the groups that see it.

Endpoints go out at once (a few milliseconds are enough to gather a burst); everything else waits for a short quiet, so
that a directory saved at once is one push. Work that equal groups share is done once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from weakref import WeakValueDictionary

import msgspec

from weft.control.compiled import NOTHING, Compiled, Update
from weft.control.problems import Problems
from weft.model.destination_rule import DestinationRule
from weft.model.group import Group, ProxyKind
from weft.model.mesh import EVERYWHERE, Mesh, Touched
from weft.model.names import ObjectKey, host_covers
from weft.model.scope import Scope
from weft.model.service import Service
from weft.model.settings import Settings
from weft.translate import endpoints, routes
from weft.translate.built import Built
from weft.translate.contribution import Contribution, VirtualHost
from weft.translate.findings import problems_of
from weft.translate.service import base, contribute
from weft.translate.view import GroupView, ServiceView, depends_on_labels, group_view, service_view
from weft.xds.snapshot import Snapshots

_Key = tuple[ServiceView, Settings]
AssignmentKey = tuple[Service, DestinationRule | None, ProxyKind]

log = logging.getLogger(__name__)


class Timing(msgspec.Struct, frozen=True):
    """Seconds. A push comes `quiet` after the last change, but at most `most` after the first."""

    endpoints: float = 0.002
    quiet: float = 0.01
    most: float = 0.1


class _Made(msgspec.Struct, frozen=True, eq=False):
    view: ServiceView  # the one that all groups with an equal view keep
    settings: Settings
    contribution: Contribution


class _Viewpoint(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """What groups have in common that look at the mesh from the same place: the hosts that look the same to all of
    them, whatever their labels. None: a host that is not seen from here."""

    made: dict[str, _Made | None]


class Push:
    def __init__(self, mesh: Mesh, snapshots: Snapshots, problems: Problems, timing: Timing | None = None) -> None:
        self._mesh = mesh
        self._snapshots = snapshots
        self._problems = problems
        self._timing = timing or Timing()
        self._groups: dict[Group, Compiled] = {}
        self._viewpoints: WeakValueDictionary[tuple[ProxyKind, Scope, Settings], _Viewpoint] = WeakValueDictionary()
        self._places: dict[Group, _Viewpoint] = {}
        self._watching: dict[str, dict[Group, _Made]] = defaultdict(dict)  # host → who sees it, and how
        self._unchecked: set[str] = set()  # hosts translated anew, and not yet looked at for findings
        self._made: dict[str, dict[_Key, _Made]] = defaultdict(dict)  # host → views, made once for all groups
        self._assigned: dict[str, dict[AssignmentKey, tuple[Built, ...]]] = defaultdict(dict)
        self._configurations: WeakValueDictionary[tuple[object, ...], Built] = WeakValueDictionary()
        self._readers: dict[str, set[str]] = defaultdict(set)  # host → hosts whose routes name it
        self._pending = Touched()
        self._pending_endpoints: set[str] = set()
        self._first_pending = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._endpoint_timer: asyncio.TimerHandle | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self.spent = 0.0  # CPU seconds of translation so far, for the bench and for diagnosis

    # Groups come and go

    def join(self, group: Group) -> None:
        """A proxy of this group is here; compute its config if it is the first."""
        if group in self._groups:
            return
        view = group_view(self._mesh, group)
        scope = self._mesh.scope(group)
        compiled = Compiled(group, scope, view, self._configuration)
        self._groups[group] = compiled
        self._place(compiled)
        updates = [compiled.contribute_group(view, base(view))]
        updates.extend(self._refresh(compiled, self._all_hosts()))
        self._snapshots.update(group, _merged(updates))
        self._check()

    def leave(self, group: Group) -> None:
        """The last proxy of this group is gone."""
        compiled = self._groups.pop(group, None)
        if compiled is None:
            return
        del self._places[group]
        for host in compiled.hosts:
            self._watching[host].pop(group, None)
            self._unchecked.add(host)
        self._check()
        self._snapshots.drop(group)

    def groups(self) -> Iterable[Group]:
        return self._groups.keys()

    @property
    def pending(self) -> bool:
        return self._timer is not None or self._endpoint_timer is not None

    async def pushed(self) -> None:
        """Returns once everything that has changed by now is in the groups' snapshots; at once if it is already."""
        while self.pending:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting

    def resource(self, group: Group, type_url: str, name: str) -> Built | None:
        compiled = self._groups.get(group)
        return compiled.resource(type_url, name) if compiled else None

    # Proxies refuse (`control/quarantine.py`)

    def suspend(self, group: Group, route: str, accepted: bytes) -> dict[str, tuple[ObjectKey, ...]]:
        """Put what is new in a refused route configuration back; returns the hosts, with the objects behind them."""
        compiled = self._groups.get(group)
        if compiled is None:
            return {}
        hosts, update = compiled.suspend(route, accepted)
        self._snapshots.update(group, update)
        return {host: made.sources for host, made in hosts.items()}

    def resume(self, group: Group, route: str, hosts: Iterable[str]) -> None:
        compiled = self._groups.get(group)
        if compiled is not None:
            self._snapshots.update(group, compiled.resume(route, hosts))

    def is_suspended(self, group: Group, route: str, host: str) -> bool:
        compiled = self._groups.get(group)
        return compiled is not None and compiled.is_suspended(route, host)

    # Changes come in

    def touch(self, touched: Touched) -> None:
        """Remember what changed and see to it that it is pushed soon."""
        loop = asyncio.get_running_loop()
        only_endpoints = touched.endpoints - touched.hosts
        if only_endpoints:
            self._pending_endpoints |= only_endpoints
            if self._endpoint_timer is None:
                self._endpoint_timer = loop.call_later(self._timing.endpoints, self._safely, self._flush_endpoints)
        if not (touched.hosts or touched.inbound or touched.scopes):
            return
        now = loop.time()
        if self._timer is None:
            self._first_pending = now
        else:
            self._timer.cancel()
        self._pending |= touched
        at = min(now + self._timing.quiet, self._first_pending + self._timing.most)
        self._timer = loop.call_at(at, self._safely, self.flush)

    def flush(self) -> None:
        """Push what is pending now."""
        self._cancel_timers()
        pending, self._pending = self._pending, Touched()
        only_endpoints, self._pending_endpoints = frozenset(self._pending_endpoints), set()
        hosts = self._covered(pending.hosts)
        hosts |= {reader for host in hosts for reader in self._readers.pop(host, ())}
        for host in hosts:
            self._made.pop(host, None)
            self._assigned.pop(host, None)
        for viewpoint in self._viewpoints.values():
            for host in tuple(viewpoint.made) if EVERYWHERE in pending.scopes else hosts:
                viewpoint.made.pop(host, None)
        for compiled in list(self._groups.values()):
            try:
                self._push_group(compiled, pending, hosts)
            except Exception:  # what translation chokes on in one group must not keep a policy from the others
                log.exception("a push to %s failed; its proxies keep what they have", compiled.group)
        self._push_endpoints((only_endpoints | pending.endpoints) - hosts)
        self._unchecked |= hosts
        self._check()

    def _flush_endpoints(self) -> None:
        self._endpoint_timer = None
        self._wake()
        hosts, self._pending_endpoints = frozenset(self._pending_endpoints), set()
        self._push_endpoints(hosts)

    def _push_group(self, compiled: Compiled, touched: Touched, hosts: frozenset[str]) -> None:
        group = compiled.group
        updates: list[Update] = []
        if _applies(touched.inbound, group) or _applies(touched.scopes, group):
            view = group_view(self._mesh, group)
            if view != compiled.view:
                updates.append(compiled.contribute_group(view, base(view)))
        if _applies(touched.scopes, group):
            compiled.scope = self._mesh.scope(group)
            self._place(compiled)
            hosts = frozenset({*self._all_hosts(), *compiled.hosts})
        if hosts:
            updates.extend(self._refresh(compiled, hosts))
        update = _merged(updates)
        if update:
            self._snapshots.update(group, update)

    def _push_endpoints(self, hosts: Iterable[str]) -> None:
        """Only who answers has changed: the same bytes for every group that sees the host, and nothing for the rest."""
        started = time.thread_time()
        updates: list[tuple[Group, Update]] = []
        for host in hosts:
            self._assigned.pop(host, None)
            for group, made in self._watching.get(host, {}).items():
                updates.append((group, self._groups[group].assign({host: self._assignments(made)})))
        self.spent += time.thread_time() - started
        for group, update in updates:
            if update:
                self._snapshots.update(group, update)

    # Translation, shared between groups

    def _refresh(self, compiled: Compiled, hosts: Iterable[str]) -> list[Update]:
        started = time.thread_time()
        contributions: dict[str, Contribution] = {}
        assignments: dict[str, tuple[Built, ...]] = {}
        for host in hosts:
            try:
                made = self._see(compiled, host)
                assigned = self._assignments(made)
            except Exception:  # one host that translation chokes on must not take the others' changes along
                log.exception("cannot translate %s for %s; it stays as it was", host, compiled.group)
            else:
                contributions[host] = made.contribution if made else NOTHING
                assignments[host] = assigned
        updates = [compiled.contribute(contributions), compiled.assign(assignments)]
        self.spent += time.thread_time() - started
        return updates

    def _see(self, compiled: Compiled, host: str) -> _Made | None:
        """What a group sees of a host from now on; None if it does not see it."""
        group = compiled.group
        alike = self._places[group].made
        made = alike[host] if host in alike else self._translate(compiled, host)
        watching = self._watching[host]
        before = watching.get(group)
        if before is not None and before is not made:
            self._unchecked.add(host)  # it may have been the last one to see it that way
        if made is None:
            watching.pop(group, None)
        else:
            watching[group] = made
        return made

    def _translate(self, compiled: Compiled, host: str) -> _Made | None:
        """Once for all groups that see it the same."""
        group, scope, settings = compiled.group, compiled.scope, compiled.view.settings
        view = service_view(self._mesh, group, scope, host)
        made = self._made[host].get((view, settings)) if view else None
        if view is not None and made is None:
            made = self._made[host][(view, settings)] = _Made(view, settings, contribute(view, settings))
            self._unchecked.add(host)
            for target in view.targets:
                self._readers[target.host].add(host)
        if view is None or not depends_on_labels(self._mesh, view, scope.namespace):
            self._places[group].made[host] = made
        return made

    def _place(self, compiled: Compiled) -> None:
        key = (compiled.group.kind, compiled.scope, compiled.view.settings)
        place = self._viewpoints.get(key)
        if place is None:
            place = self._viewpoints[key] = _Viewpoint({})
        self._places[compiled.group] = place

    def _assignments(self, made_for: _Made | None) -> tuple[Built, ...]:
        view = made_for.view if made_for else None
        if view is None or view.service is None:
            return ()
        known = self._assigned[view.host]
        service, rule, kind = key = (view.service, view.rule, view.caller.kind)
        made = known.get(key)
        if made is None:
            made = known[key] = tuple(
                assignment
                for port in service.ports
                for assignment in endpoints.assignments(service, port, rule, self._mesh.endpoints(service, port), kind)
            )
        return made

    def _configuration(self, name: str, hosts: tuple[VirtualHost, ...], view: GroupView) -> Built:
        key = (name, view.policy, *hosts)
        made = self._configurations.get(key)
        if made is None:
            made = self._configurations[key] = routes.configuration(name, hosts, view.policy)
        return made

    # Small things

    def _check(self) -> None:
        """Say what translation could not do as its author meant it, for whoever sees it; forget what nobody sees."""
        for host in self._unchecked:
            seen = dict.fromkeys(self._watching.get(host, {}).values())
            views = dict.fromkeys(made.view for made in seen)
            found = {problem for view in views for problem in problems_of(view, self._mesh)}
            self._problems.put(("translation", host), sorted(found, key=str))
            self._made[host] = {(made.view, made.settings): made for made in seen}
            if not seen:
                del self._made[host]
                self._watching.pop(host, None)
        self._unchecked.clear()

    def _all_hosts(self) -> frozenset[str]:
        return frozenset({*self._mesh.hosts(), *self._mesh.routed_hosts()})

    def _covered(self, touched: frozenset[str]) -> frozenset[str]:
        """Wildcards stand for every host they cover."""
        wildcards = [host for host in touched if host.startswith("*")]
        if not wildcards:
            return touched
        return touched | {host for host in self._all_hosts() for wide in wildcards if host_covers(wide, host)}

    def _cancel_timers(self) -> None:
        for timer in (self._timer, self._endpoint_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._endpoint_timer = None
        self._wake()

    def close(self) -> None:
        self._cancel_timers()

    def _wake(self) -> None:
        """Nobody who waits goes on before the step that calls this is done."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    def _safely(self, step: Callable[[], None]) -> None:
        """A push that fails is a defect to be seen, but the loop and what proxies have stay."""
        try:
            step()
        except Exception:
            log.exception("a push failed; proxies keep what they have")


def _applies(places: frozenset[str], group: Group) -> bool:
    return EVERYWHERE in places or group.namespace in places


def _merged(updates: Iterable[Update]) -> Update:
    merged: Update = {}
    for update in updates:
        for type_url, resources in update.items():
            merged.setdefault(type_url, {}).update(resources)
    return merged
