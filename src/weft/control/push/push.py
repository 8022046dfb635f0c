"""The push: computes, from what a change touched, new resources for just the groups of proxies that see the change.

A push is a pipeline of six steps; each step passes a value to the next:

    gather.py      what has changed                          -> Gathered
    due.py         which groups and hosts it concerns        -> Due
    view.py        what each viewer sees of these hosts      -> Views
    contribute.py  what each host contributes, translated    -> Pieces
    join.py        complete resources, as far as changed     -> ViewpointUpdate, Update
    record.py      updates of the snapshots and of problems

A viewer is a viewpoint (`viewpoints.py`), for what all of its groups see alike, or a group, for what depends on its
labels or on its calls. Viewpoints come first, since the config of a group includes that of its viewpoint. `schedule.py`
decides when a push runs. Changes of endpoints alone skip due and view, because only load assignments can change.

State that is kept for the next push: `Viewpoints` (the viewpoint of each group), `Demand` (what on-demand groups are
shown), `TranslatedHosts` (which viewer sees which host, and its translation), `JoinStep` (complete resources) and
`RecordStep` (layers). Rules: each of these is written by one step. A viewer that fails keeps its config and does not
delay others. Whatever happened before, a group has the config that it would get if it connected now.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from functools import partial

from weft.control.problems import Problems
from weft.control.push.contribute import ContributeStep
from weft.control.push.demand import Demand
from weft.control.push.due import Due, DueStep
from weft.control.push.gather import GatherStep
from weft.control.push.join import GroupPieces, JoinStep
from weft.control.push.record import RecordStep
from weft.control.push.schedule import PushTiming, Schedule, safely
from weft.control.push.translated import Translated, TranslatedHosts
from weft.control.push.view import ViewStep
from weft.control.push.viewpoints import Failed, Viewpoint, Viewpoints
from weft.mesh.calls import Address, CallReason, Calls
from weft.mesh.mesh import Mesh
from weft.mesh.touched import Touched
from weft.model.group import Group, ProxyKind
from weft.model.on_demand import Brought
from weft.translate import names
from weft.translate.built import Built
from weft.translate.contribution import VirtualHost
from weft.translate.suspects import Lineup, of_cluster, of_guards, of_routes
from weft.xds.on_demand import is_whole_port
from weft.xds.snapshot import Snapshots
from weft.xds.types import CLUSTER, LISTENER, is_held

log = logging.getLogger(__name__)


class Push:
    def __init__(
        self,
        mesh: Mesh,
        snapshots: Snapshots,
        problems: Problems,
        timing: PushTiming | None = None,
        calls: Calls | None = None,
    ) -> None:
        """`timing`: the delays before a push; None for the defaults. `calls`: what groups have called before, for
        on-demand CDS."""
        self._schedule = Schedule(timing or PushTiming(), self.flush, self._flush_endpoints, self._flush_calls)
        self._viewpoints = Viewpoints(mesh)
        self._translated = TranslatedHosts()
        self._demand = Demand(mesh, calls or Calls(), self._translated)
        self._gather = GatherStep()
        self._due = DueStep(mesh, self._viewpoints, self._demand, self._translated)
        self._view = ViewStep(mesh, self._demand, self._translated)
        self._contribute = ContributeStep(mesh, self._translated)
        self._join = JoinStep()
        self._record = RecordStep(snapshots, problems)
        self._stopwatch = _Stopwatch()

    # The pipeline

    def touch(self, touched: Touched) -> None:
        """Schedule a push of what a change touched."""
        self._schedule.add(self._gather.add(touched))

    def flush(self) -> None:
        """Push everything that is pending, now."""
        self._schedule.begin()
        gathered = self._gather.take()
        due = self._due.change(gathered.touched)
        _log(self._push(due))
        self._push_endpoints((gathered.endpoints | gathered.touched.endpoints) - due.hosts)

    def _push(self, due: Due) -> Failed:
        """Run steps 3 to 6 for what is due: first for what the groups of a viewpoint see alike, then for what is
        specific to a group. Returns the viewers that keep their config because of a defect."""
        failed = due.failed
        self._contribute.outdate(due.hosts)
        views = self._view.from_viewpoints(due.looks, failed)
        with self._stopwatch:
            common = self._join.viewpoints(self._contribute.translate(views), failed)
        failed |= {group: failed[new] for group, new in due.moves.items() if new in failed and not new.groups}
        own = self._contribute.translate_groups(due.views, failed)
        moved = {group: viewpoint for group, viewpoint in due.moves.items() if group not in failed}
        left = self._viewpoints.put(moved)
        touched = {viewpoint: update.touched for viewpoint, update in common.items()}
        views = self._view.of_groups(due, touched, moved, failed)
        with self._stopwatch:
            pieces = self._contribute.translate(views)
        updates = self._join.groups(common, GroupPieces(moved, own, pieces, due.held), failed)
        self._record.push(common, updates, moved)
        self._settle(*left, *(look.viewpoint for look in due.looks))
        return failed

    def _settle(self, *viewpoints: Viewpoint) -> None:
        """End a push: drop those of `viewpoints` that have no groups any more, and put the problems of translation
        into the list that users see."""
        for viewpoint in viewpoints:
            if not viewpoint.groups:
                self._viewpoints.discard_unused(viewpoint)
                self._demand.forget_viewpoint(viewpoint)
                self._contribute.forget(viewpoint)
                self._join.forget(viewpoint)
                self._record.forget(viewpoint)
        self._record.problems(self._contribute.settle())

    def _flush_endpoints(self) -> None:
        self._schedule.begin_endpoints()
        self._push_endpoints(self._gather.take_endpoints())

    def _push_endpoints(self, hosts: frozenset[str]) -> None:
        """Push hosts of which only the endpoints have changed."""
        if not hosts:
            return
        with self._stopwatch:
            updates = self._join.assign(self._contribute.reassign(hosts))
        self._record.endpoints(updates)

    # Groups join and leave

    def join(self, group: Group) -> None:
        """Compute the config of a group when its first proxy connects; do nothing for later proxies."""
        if self._viewpoints.of(group) is not None:
            return
        failed = self._push(self._due.arrival(group))
        if failed:
            self._forget(group)
            raise next(iter(failed.values()))
        self._bring_listeners(group, self.calls.take_listeners(group))

    def leave(self, group: Group) -> None:
        """Drop the config of a group whose last proxy has disconnected."""
        self._demand.leave(group)
        if self._viewpoints.of(group) is not None:
            self._forget(group)
            self._record.drop(group)

    def _forget(self, group: Group) -> None:
        left = self._viewpoints.remove(group)
        self._demand.forget(group)
        self._contribute.forget(group)
        self._join.forget(group)
        self._settle(*left)

    def groups(self) -> Collection[Group]:
        return self._viewpoints.groups()

    def leave_unused(self) -> None:
        """Drop the mesh's indexes for scopes that no group has. Such indexes remain after `weft explain` and similar
        queries (`weft.inspect.stage.Stage`), which also translate groups that are not served."""
        self._viewpoints.leave_unused()

    @property
    def spent(self) -> float:
        """CPU seconds spent so far on translation, and on joining what viewpoints share, for the bench and for
        diagnosis."""
        return self._stopwatch.seconds

    @property
    def pending(self) -> bool:
        return self._schedule.pending

    async def pushed(self) -> None:
        """Wait until everything that has changed so far is in the groups' snapshots."""
        await self._schedule.done()

    def close(self) -> None:
        self._schedule.close()

    def resource(self, group: Group, type_url: str, name: str) -> Built | None:
        return self._join.resource(group, type_url, name)

    # Calls of groups

    @property
    def calls(self) -> Calls:
        return self._demand.calls

    def is_on_demand(self, group: Group) -> bool:
        """Whether the group is sent each service on demand, at its first call, instead of all services at once."""
        return self._demand.is_on(group)

    def want(self, group: Group, resources: Iterable[str], *, with_hosts: bool, soon: bool = True) -> None:
        """Record the names of resources that proxies of a group wait for or have: on-demand clusters for which held
        calls wait, and clusters and listeners `0.0.0.0_PORT` that the proxies have from an earlier stream.
        `with_hosts`: whether the hosts of the clusters that the proxies have count as called, so that the group keeps
        their config. `soon`: as in `call`."""
        resources = tuple(resources)
        hosts = {host for name in resources if (host := names.called_host(name))} if with_hosts else set()
        clusters = (name for name in resources if is_held(CLUSTER, name))
        self.call(group, clusters, hosts, CallReason.HAD if hosts else CallReason.CALLED, soon=soon)
        if listeners := frozenset(name for name in resources if is_whole_port(name)):
            self._bring_listeners(group, listeners)

    def call(
        self,
        group: Group,
        held: Iterable[str] = (),
        hosts: Iterable[str] = (),
        why: CallReason = CallReason.CALLED,
        *,
        soon: bool = True,
    ) -> None:
        """Record that proxies of a group wait for the clusters `held` (`translate/hold.py`), or call `hosts` (`why`:
        how this is known), and push what the group sees now. `soon`: the push runs when the current turn of the
        event loop is over, so that all calls of one turn are one push. Without `soon`, the push is done when this
        returns."""
        called_before = self.calls.of(group).addresses
        requested = [address for name in held if (address := names.called_at(name))]
        addresses, hosts = [address for address in requested if address not in called_before], tuple(hosts)
        if requested and self._demand.bring(group, Brought.HOLDING):
            self._retell(group)
        if not self.calls.add(group, addresses, hosts, why) or self._viewpoints.of(group) is None:
            return
        calls = self.calls.of(group)
        addresses = [address for address in addresses if address in calls.addresses]
        self._demand.call(group, addresses, (host for host in hosts if host in calls.hosts))
        if soon:
            self._gather.add_calls(group, addresses)
            self._schedule.add_calls()
        else:
            self._answer_calls(group, addresses)

    def _bring_listeners(self, group: Group, listeners: frozenset[str]) -> None:
        """Record that reconnecting proxies of the group have these listeners `0.0.0.0_PORT`, and may have connections
        on them. If the group's config lacks one of them, another replica has sent it; then it is decided again whether
        the group is on demand, so that the proxies keep the listeners."""
        if self._viewpoints.of(group) is None:
            self.calls.bring_listeners(group, listeners)
        elif any(self._join.resource(group, LISTENER, name) is None for name in listeners) and self._demand.bring(
            group, Brought.WHOLE_PORTS
        ):
            self._retell(group)

    def _retell(self, group: Group) -> None:
        """Decide the group's on-demand state again, and push what changes with it."""
        _log(self._push(self._due.change(Touched(), frozenset({group}))))

    def _flush_calls(self) -> None:
        self._schedule.begin_calls()
        for group, addresses in self._gather.take_calls().items():
            if self._viewpoints.of(group) is not None:
                safely(partial(self._answer_calls, group, addresses))  # a defect must not stop the other groups

    def _answer_calls(self, group: Group, addresses: Iterable[Address]) -> None:
        """Push the config of the hosts that the group calls, and release its held calls to these addresses. Each
        stream sends the release after all other resources. A release is never undone."""
        if self.calls.of(group).everything and not self._demand.telling(group).too_many:
            self._retell(group)
        _log(self._push(self._due.calls(group, addresses)))

    # Rejected resources (`control/quarantine.py`)

    def suspend(self, group: Group, route: str, accepted: bytes) -> dict[str, VirtualHost]:
        """Revert the virtual hosts in which a rejected route configuration differs from the `accepted` one. Returns
        these virtual hosts as they were rejected, by host."""
        hosts, update = self._join.suspend(group, route, accepted)
        self._record.group(group, update)
        return hosts

    def resume(self, group: Group, route: str, hosts: Iterable[str]) -> None:
        self._record.group(group, self._join.resume(group, route, hosts))

    def is_suspended(self, group: Group, route: str, host: str) -> bool:
        return self._join.is_suspended(group, route, host)

    def suspects(self, group: Group, refused: Built) -> Lineup | None:
        """Return the objects that may be at fault for a rejected listener or cluster (`refused`); None if they cannot
        be tried one by one."""
        view = self._translated.group_view(group)
        if view is None:
            return None
        at_gateway = group.kind is ProxyKind.GATEWAY and refused.type_url == LISTENER
        if refused.name == names.VIRTUAL_INBOUND or at_gateway:
            return of_guards(view, refused.name)
        host = refused.name.rpartition("|")[2]
        seen = self._seen(group, host) if refused.type_url == CLUSTER else None
        return of_cluster(seen.view, refused, seen.settings) if seen is not None else None

    def suspect_routes(self, group: Group, host: str, refused: VirtualHost) -> Lineup | None:
        """Return the objects that may be at fault for the rejected routes of a host (`refused`: its virtual host); None
        if they cannot be tried one by one."""
        seen = self._seen(group, host)
        port = refused.name.rpartition(":")[2]
        return of_routes(seen.view, int(port)) if seen is not None and port.isdecimal() else None

    def _seen(self, group: Group, host: str) -> Translated | None:
        return self._translated.seen_by(group, self._viewpoints.of(group), host)

    def _viewpoint(self, group: Group) -> Viewpoint:
        viewpoint = self._viewpoints.of(group)
        if viewpoint is None:
            raise LookupError(f"{group} has no proxies")
        return viewpoint


def _log(failed: Failed) -> None:
    for viewer, error in failed.items():
        if isinstance(viewer, Viewpoint):
            namespace = viewer.key.scope.namespace
            log.error("a push to the proxies of namespace %s failed; they keep their config", namespace, exc_info=error)
        else:
            log.error("a push to %s failed; its proxies keep their config", viewer, exc_info=error)


class _Stopwatch:
    """A context manager that sums the CPU seconds of this thread."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = time.thread_time()

    def __exit__(self, *_error: object) -> None:
        self.seconds += time.thread_time() - self._started
