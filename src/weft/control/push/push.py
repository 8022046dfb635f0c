"""Where the mesh meets the streams: what a change touched becomes new resources for just the groups that see it.

When that is due is for `gathering.py` to say, what a group is told of for `demand.py`, how it sees that for
`watching.py`, and `translation.py` makes what equal groups share once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Set
from functools import partial

from weft.control.problems import Problems
from weft.control.push.compiled import Compiled, Update, merged
from weft.control.push.demand import Demand, Watcher
from weft.control.push.gathering import Gathering, Timing, safely
from weft.control.push.place import Change, Place, PlaceKey, place_key, staying
from weft.control.push.translation import Made, Translation
from weft.control.push.watching import Watching
from weft.mesh.calls import Address, CallReason, Calls
from weft.mesh.mesh import Mesh
from weft.mesh.touched import EVERYWHERE, Touched
from weft.model.group import Group, ProxyKind
from weft.model.names import host_covers
from weft.model.on_demand import Brought, Telling
from weft.model.scope import Scope
from weft.translate import names
from weft.translate.built import Built
from weft.translate.contribution import VirtualHost
from weft.translate.service import base
from weft.translate.suspects import Lineup, of_cluster, of_guards, of_routes
from weft.translate.view import GroupView, group_view
from weft.xds.snapshot import Snapshots
from weft.xds.types import CLUSTER, LISTENER

log = logging.getLogger(__name__)


class Push:
    def __init__(
        self,
        mesh: Mesh,
        snapshots: Snapshots,
        problems: Problems,
        timing: Timing | None = None,
        calls: Calls | None = None,
    ) -> None:
        """`calls`: what groups have called already."""
        self._mesh = mesh
        self._calling: dict[Group, list[Address]] = {}  # those that have called somebody new, and where
        self._snapshots = snapshots
        self._groups: dict[Group, Compiled] = {}
        self._places: dict[PlaceKey, Place] = {}
        self._place_of: dict[Group, Place] = {}
        self._demand = Demand(mesh, calls or Calls())
        self._translation = Translation(mesh)
        self._watching = Watching(mesh, self._demand, self._translation, problems)
        self._gathering = Gathering(timing or Timing(), self.flush, self._flush_endpoints)

    # Groups come and go

    def join(self, group: Group) -> None:
        """A proxy of this group is here; compute its config if it is the first."""
        if group in self._groups:
            return
        scope = self._mesh.scope(group)
        view = group_view(self._mesh, group, self._demand.tell(group, scope))
        place = self._find_place(group, scope, view)
        compiled = self._groups[group] = Compiled(view, self._translation.configuration, place.compiled)
        self._put(group, place)
        updates = [compiled.contribute_group(view, base(view))]
        updates.extend(self._refresh_group(group, place.by_labels))
        updates.append(compiled.answer(name for at in self.calls.of(group).addresses for name in names.held(at)))
        self._snapshots.update(group, merged(updates), place.layer)
        if self.calls.brought(group) is Brought.HOLDING:
            self._bring_hosts(
                group, (host for host, call in self.calls.of(group).hosts.items() if call.why is CallReason.HAD)
            )
        self._watching.check()

    def leave(self, group: Group) -> None:
        """The last proxy of this group is gone."""
        self._demand.leave(group)
        compiled = self._groups.pop(group, None)
        if compiled is None:
            return
        self._watching.forget(group, compiled)
        self._take_from_place(group)
        self._watching.check()
        self._snapshots.drop(group)

    def groups(self) -> Iterable[Group]:
        return self._groups.keys()

    @property
    def spent(self) -> float:
        """CPU seconds of translation so far, for the bench and for diagnosis."""
        return self._translation.spent

    @property
    def pending(self) -> bool:
        return self._gathering.pending

    async def pushed(self) -> None:
        """Returns once everything that has changed by now is in the groups' snapshots; at once if it is already."""
        await self._gathering.done()

    def resource(self, group: Group, type_url: str, name: str) -> Built | None:
        compiled = self._groups.get(group)
        return compiled.resource(type_url, name) if compiled else None

    # Groups call

    @property
    def calls(self) -> Calls:
        return self._demand.calls

    def is_on_demand(self, group: Group) -> bool:
        """Whether it is told of services when it calls them."""
        return self._demand.is_on(group)

    def call(
        self,
        group: Group,
        held: Iterable[str] = (),
        hosts: Iterable[str] = (),
        why: CallReason = CallReason.CALLED,
        *,
        soon: bool = True,
    ) -> None:
        """Proxies of a group wait for these clusters (`translate/hold.py`), or call these hosts. They are told of whom
        they call at once; what comes in one turn of the loop is one push. `soon`: not before that turn is over."""
        known = self.calls.of(group).addresses
        asked = [address for name in held if (address := names.called_at(name))]
        addresses, hosts = [address for address in asked if address not in known], tuple(hosts)
        strange = [host for host in hosts if self._seen(group, host) is None] if why is CallReason.HAD else ()
        brought = Brought.HOLDING if asked else Brought.HOSTS if strange else None
        if brought is not None and self._demand.bring(group, brought):
            self._push(Touched(), frozenset(), frozenset({group}))
        if not self.calls.add(group, addresses, hosts, why) or group not in self._groups:
            return
        kept = self.calls.of(group)
        addresses = [address for address in addresses if address in kept.addresses]
        self._demand.call(group, addresses, (host for host in hosts if host in kept.hosts))
        self._bring_hosts(group, strange)
        if not soon:
            self._answer_calls(group, addresses)
            return
        import asyncio  # a stage needs no loop, and those who make one wait for an answer

        if not self._calling:
            asyncio.get_running_loop().call_soon(safely, self._flush_calls)
        self._calling.setdefault(group, []).extend(addresses)

    def _bring_hosts(self, group: Group, hosts: Iterable[str]) -> None:
        if self._demand.bring_hosts(group, self._place_of[group], hosts):
            self._push(Touched(), frozenset(), frozenset({group}))

    def _flush_calls(self) -> None:
        calling, self._calling = self._calling, {}
        for group, addresses in calling.items():
            if group in self._groups:
                safely(partial(self._answer_calls, group, addresses))  # or the others' calls would wait in vain

    def _answer_calls(self, group: Group, addresses: Iterable[Address]) -> None:
        """These may go on: each stream sends that when it has sent the rest. Once told, it is for good."""
        if self.calls.of(group).everything and not self._demand.telling(group).too_many:
            self._push(Touched(), frozenset(), frozenset({group}))
        answers = self._groups[group].answer(name for address in addresses for name in names.held(address))
        self._snapshots.update(group, merged([*self._refresh_group(group, ()), answers]))
        self._watching.check()

    # Proxies refuse (`control/quarantine.py`)

    def suspend(self, group: Group, route: str, accepted: bytes) -> dict[str, VirtualHost]:
        """Put what is new in a refused route configuration back; returns the hosts, as they were refused."""
        compiled = self._groups.get(group)
        if compiled is None:
            return {}
        hosts, update = compiled.suspend(route, accepted)
        self._snapshots.update(group, update)
        return hosts

    def suspects(self, group: Group, refused: Built) -> Lineup | None:
        """Who may be at fault for a listener or a cluster that more than one object made; None where that cannot be
        tried out."""
        compiled = self._groups.get(group)
        if compiled is None:
            return None
        at_gateway = group.kind is ProxyKind.GATEWAY and refused.type_url == LISTENER
        if refused.name == names.VIRTUAL_INBOUND or at_gateway:
            return of_guards(compiled.view, refused.name)
        host = refused.name.rpartition("|")[2]
        made = self._seen(group, host) if refused.type_url == CLUSTER else None
        return of_cluster(made.view, refused, made.settings) if made is not None else None

    def suspect_routes(self, group: Group, host: str, refused: VirtualHost) -> Lineup | None:
        """Who may be at fault for a host's routes."""
        made = self._seen(group, host)
        port = refused.name.rpartition(":")[2]
        return of_routes(made.view, int(port)) if made is not None and port.isdecimal() else None

    def _seen(self, group: Group, host: str) -> Made | None:
        place = self._place_of.get(group)
        return self._watching.seen(host, group, place) if place is not None else None

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
        self._gathering.add(touched)

    def flush(self) -> None:
        """Push what is pending now."""
        pending, only_endpoints = self._gathering.take()
        hosts = self._translation.forget(self._covered(pending.hosts))
        self._push(pending, hosts)
        self._push_endpoints((only_endpoints | pending.endpoints) - hosts)
        self._watching.check(hosts)

    def _flush_endpoints(self) -> None:
        self._push_endpoints(self._gathering.take_endpoints())

    def _push(self, touched: Touched, hosts: frozenset[str], due: Set[Group] = frozenset()) -> None:
        """`due`: groups that are to be told in another way than they are, beside those that are for what changed."""
        due |= {group for place in self._places.values() if self._demand.is_due(place, hosts) for group in place.groups}
        views = self._views(touched, hosts, due)
        before = {place: place.key for place in self._places.values()}
        moving = self._moving(touched, views)
        changes: dict[Place, Change] = {}
        for place in tuple(self._places.values()):
            here = self._seen_there(hosts, touched.at_gateways, place)
            moved = place.key != before[place]
            if moved or _applies(touched.scopes, place.scope.namespace):
                here |= {*self._all_hosts(place.scope), *place.compiled.hosts, *place.by_labels}
            if (here or moved) and place.groups:
                try:
                    changes[place] = self._push_place(place, here, views)
                except Exception:  # what translation chokes on in one place must not keep a policy from the others
                    log.exception("a push to the proxies of %s failed; they keep what they have", place.scope.namespace)
        updates: dict[Group, Update] = {}
        for group in tuple(self._groups):
            try:
                updates[group] = self._push_group(group, views.get(group), moving.get(group), changes, hosts)
            except Exception:  # what translation chokes on in one group must not keep a policy from the others
                log.exception("a push to %s failed; its proxies keep what they have", group)
        for group, update in updates.items():
            # What goes from all and stays with one is not to be gone in between.
            change = changes.get(self._place_of[group])
            if update and change and group not in moving and (stays := staying(update, change.update)):
                self._snapshots.update(group, stays)
        for place, change in changes.items():
            self._snapshots.update_layer(place.layer, change.update)
        for group, update in updates.items():
            if update or group in moving:
                self._snapshots.update(group, update, self._place_of[group].layer)

    def _views(self, touched: Touched, hosts: frozenset[str], due: Set[Group]) -> dict[Group, GroupView]:
        """How the groups that are concerned are now."""
        found: dict[Group, GroupView] = {}
        for group in self._groups:
            rescoped = _applies(touched.scopes, group.namespace)
            concerned = rescoped or group in due or _applies(touched.inbound, group.namespace)
            if concerned or group.kind is ProxyKind.GATEWAY:  # which any host's change may change: they are few
                try:
                    told = self._told(group, hosts, rescoped=rescoped, due=group in due)
                    found[group] = group_view(self._mesh, group, told)
                except Exception:
                    log.exception("a push to %s failed; its proxies keep what they have", group)
        return found

    def _told(self, group: Group, hosts: frozenset[str], *, rescoped: bool, due: bool) -> Telling:
        place = self._place_of[group]
        if not rescoped and not due:
            return self._demand.telling(group)
        scope = self._mesh.scope(group) if rescoped else place.scope
        return self._demand.tell(group, scope, lambda: self._demand.keeps(place, hosts))

    def _moving(self, touched: Touched, views: dict[Group, GroupView]) -> dict[Group, PlaceKey]:
        """Who looks from another place now. A place that all of its groups leave for the same moves with them."""
        moving: dict[Group, PlaceKey] = {}
        for place in tuple(self._places.values()):
            keys = dict.fromkeys(place.groups, place.key)
            for group in place.groups:
                if (view := views.get(group)) is not None:
                    rescoped = _applies(touched.scopes, group.namespace) or group.kind is ProxyKind.GATEWAY
                    keys[group] = place_key(group, self._mesh.scope(group) if rescoped else place.scope, view)
            key = next(iter(keys.values()), place.key)
            if key not in self._places and all(each == key for each in keys.values()):
                del self._places[place.key]
                left, place.key = place.scope, key
                self._places[key] = place
                self._leave_scope(left)
            else:
                moving.update((group, each) for group, each in keys.items() if each != place.key)
        return moving

    def _push_place(self, place: Place, hosts: frozenset[str], views: dict[Group, GroupView]) -> Change:
        group = next(iter(place.groups))
        hosts |= self._demand.move_place(place, hosts, group)
        here = frozenset(host for host in hosts if place.concerns(host)) if place.on_demand else hosts
        before = {host: place.compiled.routes_of(host) for host in here}
        updates = []
        if (view := views.get(group)) is not None and place_key(group, place.scope, view) == place.key:
            updates.append(place.compiled.look_from(view))
        updates.extend(self._watching.refresh_place(place, here, group))
        rerouted = frozenset(host for host in here if place.compiled.routes_of(host) != before[host])
        return Change(hosts, merged(updates), rerouted)

    def _push_group(
        self,
        group: Group,
        view: GroupView | None,
        moving_to: PlaceKey | None,
        changes: dict[Place, Change],
        changed: frozenset[str],  # hosts, wherever it looks from
    ) -> Update:
        compiled = self._groups[group]
        change: Change | None = None
        updates: list[Update] = []
        if view is not None and view != compiled.view:
            updates.append(compiled.contribute_group(view, base(view)))
        if moving_to is not None:
            place = self._find_place(group, moving_to[1], compiled.view)
            self._take_from_place(group)
            self._put(group, place)
            updates.append(compiled.rest_upon(place.compiled))
            hosts = frozenset(
                {*place.by_labels, *compiled.hosts, *self._demand.seen_by(group)}
            )  # hidden before, or not
        else:
            place = self._place_of[group]
            change = changes.get(place)
            touched = change.hosts if change else ()
            hosts = frozenset(host for host in touched if host in place.by_labels or compiled.has(host))
            if change:
                updates.append(compiled.rejoin(change.rerouted))
        if hosts or (place.on_demand and (change or moving_to is not None)):
            updates.extend(self._refresh_group(group, hosts, change.hosts if change else hosts | changed))
        return merged(updates)

    def _push_endpoints(self, hosts: Iterable[str]) -> None:
        """Only who answers has changed: the same bytes for every group that sees the host, and nothing for the rest."""
        started = time.thread_time()
        updates: list[tuple[Watcher, Update]] = []
        for host in hosts:
            self._translation.forget_assignments(host)
            for watcher, made in self._watching.of(host).items():
                compiled = watcher.compiled if isinstance(watcher, Place) else self._groups[watcher]
                updates.append((watcher, compiled.assign({host: self._translation.assignments(made)})))
        self._translation.spent += time.thread_time() - started
        for watcher, update in updates:
            if isinstance(watcher, Place):
                self._snapshots.update_layer(watcher.layer, update)
            elif update:
                self._snapshots.update(watcher, update)

    def _refresh_group(self, group: Group, hosts: Iterable[str], touched: frozenset[str] = frozenset()) -> list[Update]:
        return self._watching.refresh_group(group, self._place_of[group], self._groups[group], hosts, touched)

    # Where groups look from

    def _find_place(self, group: Group, scope: Scope, view: GroupView) -> Place:
        key = place_key(group, scope, view)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = Place(key, view, self._translation.configuration)
            try:
                hosts = self._all_hosts(scope)
                self._demand.move_place(place, hosts, group)
                updates = self._watching.refresh_place(place, hosts if not place.on_demand else place.told, group)
                self._snapshots.update_layer(place.layer, merged(updates))
            except Exception:
                self._watching.forget(place, place.compiled)
                del self._places[key]
                raise
        return place

    def _put(self, group: Group, place: Place) -> None:
        self._place_of[group] = place
        place.groups[group] = None

    def _take_from_place(self, group: Group) -> None:
        place = self._place_of.pop(group)
        del place.groups[group]
        if not place.groups:
            self._watching.forget(place, place.compiled)
            del self._places[place.key]
            self._leave_scope(place.scope)

    def _leave_scope(self, scope: Scope) -> None:
        if all(place.scope != scope for place in self._places.values()):
            self._mesh.leave(scope)

    def leave_unused(self) -> None:
        """The scopes from which no group here looks: somebody has asked what it would see from there (`stage.py`)."""
        for scope in self._mesh.looked_from - {place.scope for place in self._places.values()}:
            self._mesh.leave(scope)

    # Small things

    def _all_hosts(self, scope: Scope | None = None) -> frozenset[str]:
        if scope is not None and scope.servers is not None:
            return self._mesh.edge(scope).hosts
        return frozenset({*self._mesh.hosts(), *self._mesh.routed_hosts()})

    def _seen_there(self, hosts: frozenset[str], at_gateways: frozenset[str], place: Place) -> frozenset[str]:
        """Those of changed hosts that a place may see. A gateway sees what its routes name: that changes with them."""
        if place.scope.servers is None:
            return hosts
        now, before = self._mesh.edge(place.scope).hosts, frozenset({*place.compiled.hosts, *place.by_labels})
        hosts |= at_gateways
        wildcards = [host for host in hosts if host.startswith("*")]
        covered = {host for host in now for wide in wildcards if host_covers(wide, host)}
        return (hosts & (now | before)) | (now ^ before) | covered

    def _covered(self, touched: frozenset[str]) -> frozenset[str]:
        """Wildcards stand for every host they cover."""
        wildcards = [host for host in touched if host.startswith("*")]
        if not wildcards:
            return touched
        return touched | {host for host in self._all_hosts() for wide in wildcards if host_covers(wide, host)}

    def close(self) -> None:
        self._gathering.close()


def _applies(places: frozenset[str], namespace: str) -> bool:
    return EVERYWHERE in places or namespace in places
