"""The control plane's side of one agent's stream, without its socket: the agent's frames in, updates out.

The observer provides the pods of the node and the group of each; the agent reports for which of these pods it has
sockets; the updates contain the groups of just those pods. Rules: one update is unacknowledged at a time. Changes that
are pending meanwhile are stored as one revision per group, so a slow agent costs nothing and gets the latest state
once. What the agent has is not stored but derived from the tables that all streams share.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import count
from typing import Protocol
from weakref import WeakKeyDictionary

import msgspec

from weft.xds import frames
from weft.xds.clients import Sync
from weft.xds.frames import (
    Entry,
    GroupUpdate,
    Hello,
    PodsFrame,
    ProxyFrame,
    ReportFrame,
    TakenFrame,
    Update,
    WantedFrame,
)
from weft.xds.layer import unlike
from weft.xds.on_demand import cluster_host, is_whole_port
from weft.xds.patch import Patch, difference
from weft.xds.request import NAME_LENGTH, NAMES, StreamRefused
from weft.xds.snapshot import GroupTables, Snapshots
from weft.xds.stream import NackedResource
from weft.xds.table import Behind, Resource, ResourceTable, parts_of
from weft.xds.types import CLUSTER, LISTENER

# An update that has reached this size is sent without further groups, which follow in the next update. A group is never
# split.
BATCH_BYTES = 1 << 20
# New groups of a node that are computed per turn. Computing a group takes a while. When all nodes connect at once, as
# after a restart, handshakes and endpoint changes must not wait for all groups of a node.
JOINS = 1
PODS = 10_000  # pods per node; the kubelet's default limit is 110
PROXIES = 4 * PODS
_ENTRY_BYTES = 64  # approximate size of an entry without its body


class NodeObserver(Protocol):
    """Provides the nodes and their pods to the streams, and receives the reports about their proxies."""

    def admit(self, node: str, principal: object) -> str:
        """Return the name of the node whose agent the caller is. `node`: the name that the agent sends. `principal`:
        the result of authentication. Raises StreamRefused to reject the caller."""

    def placements(self, node: str) -> Mapping[str, Hashable] | None:
        """Return the group of each pod on the node; None while the pods are not known yet."""

    def subscribe(self, node: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` when the placements of the node's pods change. Returns the function that unsubscribes."""

    def name(self, group: Hashable) -> str:
        """Return the group's name, which is the same on every replica and after every restart."""

    def hold(self, group: Hashable) -> None:
        """Compute the config of the group and keep it up to date, until `release` is called. The group may get its
        first state later."""

    def release(self, group: Hashable) -> None: ...

    def want(self, group: Hashable, names: Iterable[str], had: tuple[str, ...] = ()) -> None:
        """Record that held calls of the group's proxies wait for the clusters `names`, and that the proxies already
        have the clusters and the listeners `0.0.0.0_PORT` in `had`. When this returns, the group contains all
        resources in `had` that exist. May be called before `hold`."""

    def taken(self, group: Hashable, type_url: str) -> None:
        """Called when a proxy of the group has accepted current resources of this type."""

    def on_nack(self, resource: NackedResource) -> None: ...


class ProxyState(msgspec.Struct, frozen=True):
    """State of one proxy behind an agent, as the agent reports it. `types`: the sync state of each type. `settled`: for
    each type, the push up to which the proxy has acknowledged everything; `behind`: for each stale type, the first push
    that it has not acknowledged. `errors` and `refused`: the errors of its last NACKs, without and with their types.
    `node`: the node whose agent reports the proxy, first at the time `since`. `cluster`, `version`: CLUSTER_ID and
    ISTIO_VERSION in the proxy's node metadata."""

    node_id: str
    group: Hashable
    types: Mapping[str, Sync]
    errors: tuple[str, ...]
    settled: Mapping[str, int] = {}  # type → the push up to which the proxy has acknowledged everything
    behind: Mapping[str, int] = {}  # stale type → the first push that the proxy has not acknowledged
    refused: Mapping[str, str] = {}  # type → error message of the last NACK; removed with its cause
    node: str = ""  # the node whose agent reports the proxy
    since: float = 0.0  # when the agent first reported the proxy
    cluster: str = ""
    version: str = ""


class NodeStream:
    def __init__(
        self,
        snapshots: Snapshots,
        observer: NodeObserver,
        node: str,
        hello: Hello,
        *,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.node = node
        self._clock = clock
        self._snapshots = snapshots
        self._observer = observer
        self._wake = wake
        self._pods: set[str] = set()
        self._wanted: dict[str, str] = {}  # pod → name of the group that the agent should serve to the pod
        self._placed: dict[str, str] = {}  # pod → name of the group, as last sent to the agent
        self._joined: dict[str, _Joined] = {}
        self._moved = True
        self._nonces = count(1)
        self._flight: int | None = None
        self._proxies: dict[int, ProxyFrame] = {}
        self._since: dict[int, float] = {}  # proxy number → when the proxy was first reported
        self._digests = hello.groups
        self._called = dict(hello.wanted)  # group not joined yet → clusters that it calls
        self._asked: dict[str, int] = {}  # group not joined yet → its last request number, which needs a reply
        self._whole = frozenset(hello.whole)
        self._everything = _everything(hello)
        self._builds = hello.builds
        self._held = {(type_url, *each) for type_url, bodies in hello.bodies.items() for each in bodies}
        self._resuming = True
        self._add(hello.pods)

    def receive(self, frame: frames.FromAgent) -> None:
        if isinstance(frame, TakenFrame):
            if frame.nonce == self._flight:
                self._flight = None
        elif isinstance(frame, PodsFrame):
            self._pods.difference_update(frame.removed)
            for pod in frame.removed:
                self._placed.pop(pod, None)
            self._add(frame.added)
            self._moved = True
        elif isinstance(frame, ReportFrame):
            self._report(frame)
        elif isinstance(frame, WantedFrame):
            self._want(frame)
        else:
            raise StreamRefused("a second Hello on one stream")

    def placements_changed(self) -> None:
        self._moved = True
        self._wake()

    def turn(self) -> Update | None:
        """Return the next update, or None if there is nothing to send or the last update is unacknowledged. Raises
        Behind when the stream must be restarted."""
        if self._flight is not None:
            return None
        gone: list[str] = []
        if self._moved:
            placements = self._observer.placements(self.node)
            if placements is None:
                return None
            self._moved = False
            gone = self._follow(placements)
        updates = tuple(self._updates())
        placements_sent = {
            pod: group
            for pod, group in self._wanted.items()
            if self._placed.get(pod) != group and self._joined[group].revision is not None
        }
        resumed = (
            self._resuming and not self._moved and all(each.revision is not None for each in self._joined.values())
        )
        if not (updates or placements_sent or gone or resumed):
            return None
        self._placed.update(placements_sent)
        if resumed:
            self._resuming, self._held, self._digests, self._everything = False, set(), {}, ()
        self._flight = next(self._nonces)
        return Update(self._flight, updates, placements_sent, tuple(gone), resumed)

    @property
    def in_flight(self) -> bool:
        """Whether an update was sent that the agent has not acknowledged."""
        return self._flight is not None

    @property
    def resuming(self) -> bool:
        """Whether part of the state that the agent needs after its Hello has not been sent yet."""
        return self._resuming

    @property
    def settled(self) -> bool:
        """Whether the agent has acknowledged everything that there is to send."""
        return self._flight is None and not self._moved and all(not each.is_owed() for each in self._joined.values())

    @property
    def groups(self) -> list[Hashable]:
        return [each.group for each in self._joined.values()]

    @property
    def pods(self) -> frozenset[str]:
        return frozenset(self._pods)

    def proxies(self) -> list[ProxyState]:
        return [
            ProxyState(
                each.node_id,
                joined.group,
                sync := joined.sync(each),
                each.errors,
                {type_url: max(0, at) for type_url, at in each.settled.items()},
                joined.behind(each, sync),
                each.refused,
                self.node,
                self._since[each.number],
                each.cluster,
                each.version,
            )
            for each in self._proxies.values()
            if (joined := self._joined.get(each.group)) is not None
        ]

    def close(self) -> None:
        for name in tuple(self._joined):
            self._leave(name)

    def _add(self, pods: Iterable[str]) -> None:
        self._pods.update(pods)
        if len(self._pods) > PODS or any(len(pod) > NAME_LENGTH for pod in pods):
            raise StreamRefused(f"more than {PODS} pods on one node, or a name longer than {NAME_LENGTH}")

    def _follow(self, placements: Mapping[str, Hashable]) -> list[str]:
        """Join the groups of the agent's pods, at most JOINS new groups per call, and leave all groups without a pod of
        the agent. Returns the names of groups that were left and that the agent has, so that the agent can drop them.
        `placements`: the group of each pod on the node."""
        groups = {pod: group for pod in self._pods if (group := placements.get(pod)) is not None}
        names = {group: self._observer.name(group) for group in dict.fromkeys(groups.values())}
        fresh = [(group, name) for group, name in names.items() if name not in self._joined]
        for group, name in fresh[:JOINS]:
            called = (*self._called.pop(name, ()), *(self._everything if name in self._whole else ()))
            if called:
                self._observer.want(group, (), called)
            self._observer.hold(group)
            joined = _Joined(self._snapshots, group, name, self._wake)
            joined.asked = self._asked.pop(name, 0)
            # A new group is first in the order, because groups that change all the time could delay it.
            self._joined = {name: joined, **self._joined}
        if len(fresh) > JOINS:
            self._moved = True
            self._wake()
        self._wanted = {pod: name for pod, group in groups.items() if (name := names[group]) in self._joined}
        self._placed = {pod: group for pod, group in self._placed.items() if pod in self._wanted}
        unwanted = self._joined.keys() - names.values()
        gone = [name for name in unwanted if self._joined[name].revision is not None]
        for name in unwanted:
            self._leave(name)
        return gone

    def _leave(self, name: str) -> None:
        joined = self._joined.pop(name)
        joined.close()
        self._observer.release(joined.group)

    def _updates(self) -> Iterable[GroupUpdate]:
        size = 0
        for joined in tuple(self._joined.values()):
            if size >= BATCH_BYTES:
                return
            if joined.is_owed():
                update = self._update(joined)
                size += sum(_weight(entry) for each in update.upserts.values() for entry in each)
                # The group is moved to the end: if it changes all the time, it must not delay the others.
                self._joined[joined.name] = self._joined.pop(joined.name)
                yield update

    def _update(self, joined: _Joined) -> GroupUpdate:
        had = self._digests.get(joined.name) if joined.revision is None else None
        have = joined.digests() if had is not None else {}
        fresh = joined.revision is None and had is None
        upserts: dict[str, list[Entry]] = {}
        removals: dict[str, list[str]] = {}
        kept: dict[str, list[str]] = {}
        whole: list[str] = []
        like = self._like(joined) if fresh and self._builds else None
        for type_url in dict.fromkeys((*joined.state.tables, *(like.state.tables if like else ()), *(had or ()))):
            table = joined.state.table(type_url)
            if had is not None and had.get(type_url) == have.get(type_url):
                joined.has(type_url, table.live.values())
                continue
            if joined.revision is None or joined.revision < table.floor:
                if not fresh:
                    whole.append(type_url)
                names: Iterable[str] = table.live
                if like is not None:
                    names, common = unlike(like.state.table(type_url), table)
                    joined.has(type_url, common)
                kept[type_url] = [name for name in table.rejected if name not in table.live]
            else:
                names = table.changed_since(joined.revision)
            entries, going = self._entries(joined, type_url, table, names)
            if like is not None:
                going += kept[type_url]
            if entries:
                upserts[type_url] = entries
            if going:
                removals[type_url] = going
        # From here on, later entries can refer to this group's bodies without sending them.
        joined.revision = self._snapshots.push
        joined.replied = joined.asked
        return GroupUpdate(
            joined.name,
            joined.revision,
            upserts,
            removals,
            fresh,
            tuple(whole),
            {type_url: names for type_url, names in kept.items() if names},
            like.name if like is not None else "",
            joined.replied,
        )

    def _like(self, joined: _Joined) -> _Joined | None:
        """Return another group of which the agent has the current state, so that `joined` can be sent as the
        difference from that group. A group on the same layer is preferred. None if there is no such group."""
        layer = joined.state.layer
        others = [each for each in self._joined.values() if each is not joined and each.is_complete()]
        return next((each for each in others if each.state.layer is layer), others[0] if others else None)

    def _entries(
        self, joined: _Joined, type_url: str, table: ResourceTable, names: Iterable[str]
    ) -> tuple[list[Entry], list[str]]:
        entries: list[Entry] = []
        going: list[str] = []
        for name in names:
            resource = table.live.get(name)
            if resource is not None:
                if self._has(type_url, resource):
                    entries.append(Entry(name, resource.version))
                elif (patch := self._patch(joined, type_url, resource)) is not None:
                    entries.append(Entry(name, resource.version, None, patch))
                else:
                    entries.append(Entry(name, resource.version, resource.body))
                joined.has(type_url, (resource,))
            elif name not in table.rejected:
                going.append(name)
                joined.large.pop((type_url, name), None)
        return entries, going

    def _patch(self, joined: _Joined, type_url: str, resource: Resource) -> Patch | None:
        """Return a patch to `resource` of the group `joined` from a body that the agent has under the same name, in
        that group or another. None if there is no such body, or the patch is longer than half of the resource."""
        parts = parts_of(resource)
        key = type_url, resource.name
        before = joined.large.get(key)
        if before is None:
            before = next((large for each in self._joined.values() if (large := each.large.get(key))), None)
        if before is None or not parts or not self._builds:
            return None
        patch = difference(before.version, parts_of(before), parts)
        return patch if patch.weight < patch.size // 2 else None

    def _has(self, type_url: str, resource: Resource) -> bool:
        """Whether the agent has the body of this version of the resource: the agent listed it in its Hello, or it was
        sent in one of the agent's groups and is still current there."""
        name, version = resource.name, resource.version
        if (type_url, name, version) in self._held:
            return True
        for joined in self._joined.values():
            if joined.revision is not None:
                table = joined.state.table(type_url)
                there = table.live.get(name)
                if there is not None and there.version == version and table.changed_at(name) <= joined.revision:
                    return True
        return False

    def _want(self, wanted: WantedFrame) -> None:
        joined = self._joined.get(wanted.group)
        if joined is not None:
            if wanted.number:
                self._observer.want(joined.group, (), wanted.names)
            else:
                self._observer.want(joined.group, wanted.names)
            joined.asked = max(joined.asked, wanted.number)
        elif len(self._called) < PODS and len(self._called.get(wanted.group, ())) < NAMES:
            self._called.setdefault(wanted.group, []).extend(wanted.names[:NAMES])
            self._asked[wanted.group] = max(self._asked.get(wanted.group, 0), wanted.number)

    def _report(self, report: ReportFrame) -> None:
        # Acceptances are applied first: a resource that one proxy accepted is not at fault if another proxy rejected
        # it.
        for each in report.acceptances:
            joined = self._joined.get(each.group)
            if joined is None:
                continue
            if each.versions is None:
                revision = min(each.revision, joined.revision or 0)
                current = self._snapshots.accept_until(joined.group, each.type_url, revision)
            else:
                current = self._snapshots.accept_versions(joined.group, each.type_url, each.versions)
            # When a proxy rejects a resource, its agent goes back to the last good version without the control plane.
            # If a proxy then accepts that version, it has not accepted the one that was sent since.
            if current:
                self._observer.taken(joined.group, each.type_url)
        for refusal in report.refusals:
            joined = self._joined.get(refusal.group)
            if joined is not None:
                message = refusal.message[:NAME_LENGTH]
                what = (joined.group, refusal.type_url, refusal.name, refusal.version, message)
                self._snapshots.reject(*what)
                self._observer.on_nack(NackedResource(*what, refusal.proxy[:NAME_LENGTH]))
        for number in report.left:
            self._proxies.pop(number, None)
            self._since.pop(number, None)
        for proxy in report.proxies:
            self._proxies[proxy.number] = frames.bounded(proxy)
            self._since.setdefault(proxy.number, self._clock())
        if len(self._proxies) > PROXIES:
            raise StreamRefused(f"more than {PROXIES} proxies on one node")


def _everything(hello: Hello) -> tuple[str, ...]:
    """Return the names that count as called by every group in `hello.whole` (the groups that sent no list of called
    clusters). They are taken from all resources in the Hello, whichever group has them: one cluster for each
    host, and all listeners `0.0.0.0_PORT`. A group is later sent only those that it may see."""
    by_host = {host: name for name, _ in hello.bodies.get(CLUSTER, ()) if (host := cluster_host(name))}
    return (*by_host.values(), *(name for name, _ in hello.bodies.get(LISTENER, ()) if is_whole_port(name)))


class _Joined:
    """One group that an agent gets, on that agent's stream. It is the `table.Watcher` of the group's tables."""

    def __init__(self, snapshots: Snapshots, group: Hashable, name: str, wake: Callable[[], None]) -> None:
        self.group = group
        self.name = name
        self.revision: int | None = None  # all changes up to this push were sent to the agent; None: nothing was sent
        self.wake = wake
        self._snapshots = snapshots
        self.state = snapshots.attach(group, self)
        self.asked = self.replied = 0  # the agent's last request number, and the last one replied to
        self.large: dict[
            tuple[str, str], Resource
        ] = {}  # (type, name) → a large body that the agent has, as the base of patches

    def has(self, type_url: str, resources: Iterable[Resource]) -> None:
        """Record that the agent has these resources. Only large resources (those for which `parts_of` returns parts)
        are recorded: a later version of such a resource can then be sent as a patch of the recorded version."""
        self.large.update(((type_url, each.name), each) for each in resources if parts_of(each))

    def is_complete(self) -> bool:
        """Whether the agent has the current state of the group, or will have it before any later message."""
        return self.revision is not None and self.state.ready and not self.state.dropped and not self.is_owed()

    def settled(self, type_url: str) -> int | None:
        return self.revision

    def is_owed(self) -> bool:
        if self.state.dropped:
            raise Behind("a group of this stream was dropped")
        if not self.state.ready:
            return False
        revision = self.revision
        if revision is None or self.replied < self.asked:
            return True
        return any(table.revision > revision for table in self.state.tables.values())

    def sync(self, proxy: ProxyFrame) -> dict[str, Sync]:
        by_type = {}
        for type_url, settled in proxy.settled.items():
            late = settled < self.state.table(type_url).revision
            by_type[type_url] = Sync.NOT_SENT if settled == frames.NOT_SENT else Sync.STALE if late else Sync.SYNCED
        return by_type

    def behind(self, proxy: ProxyFrame, sync: Mapping[str, Sync]) -> dict[str, int]:
        """Return, for each stale type in `sync`, the number of the first push that the proxy has not acknowledged.
        The agent reports this number if it has received that push. If it has not, the number is that of the first
        change after the revision that the proxy has acknowledged."""
        first_missing = {}
        for type_url, state in sync.items():
            if state is Sync.STALE:
                table, settled = self.state.table(type_url), proxy.settled[type_url]
                news = table.changed_since(settled) if settled else ()
                first_change = min(map(table.changed_at, news), default=table.revision)
                first_missing[type_url] = proxy.behind.get(type_url) or first_change
        return first_missing

    def digests(self) -> dict[str, str]:
        return {type_url: _digest(self.state, type_url) for type_url in self.state.tables}

    def close(self) -> None:
        self._snapshots.detach(self.state, self)


def _weight(entry: Entry) -> int:
    return _ENTRY_BYTES + len(entry.body or b"") + (entry.patch.weight if entry.patch else 0)


# Digests are cached: when many agents with the same groups reconnect together, each group is digested once.
_digests: WeakKeyDictionary[GroupTables, dict[str, tuple[int, int, str]]] = WeakKeyDictionary()


def _digest(state: GroupTables, type_url: str) -> str:
    known = _digests.setdefault(state, {})
    table = state.tables[type_url]
    revision, size, digest = known.get(type_url, (-1, -1, ""))
    if (revision, size) != (table.revision, len(table.live)):  # a quarantine can hide a name without a new revision
        digest = frames.digest((name, resource.version) for name, resource in table.live.items())
        known[type_url] = table.revision, len(table.live), digest
    return digest
