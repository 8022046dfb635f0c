"""The node agent's copy of the config of its groups (a group is a set of proxies with equal config). It applies the
updates of the control plane, fills the snapshots from which the node's proxies are served, and reports to the
control plane what the proxies accepted and rejected, and up to which push each proxy is in sync.

The copy is in memory only and stays unchanged while the control plane is unreachable. Each group has a mirror, which
is the last state that the control plane sent, and a snapshot, which is served to proxies and may contain older
versions of quarantined resources. Rule: a group's snapshot gets its first update only when all resources of the
group have arrived. Otherwise a proxy that reconnects would remove resources that are still on their way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable
from itertools import count
from weakref import WeakValueDictionary

from weft.xds import frames
from weft.xds.clients import StreamStatus, Sync
from weft.xds.frames import (
    Acceptance,
    GroupUpdate,
    Hello,
    PodsFrame,
    ProxyFrame,
    Refusal,
    ReportFrame,
    Update,
    WantedFrame,
)
from weft.xds.on_demand import CALLED, RESUMED, cluster_host, held_address, is_whole_port
from weft.xds.patch import Mismatch, patched
from weft.xds.snapshot import Snapshots
from weft.xds.stream import NackedResource
from weft.xds.table import Resource
from weft.xds.types import CLUSTER, LISTENER, is_held

# The most bytes of body names in a Hello; the control plane accepts twice as many (`request.REQUEST_BYTES`). The
# control plane sends bodies again that are not listed; a Hello that is too long would be rejected at every attempt.
_MOST_LISTED = 8 << 20
_ENTRY_BYTES = 16  # bytes that encoding adds to a name and a version
_MOST_SAID = 4 << 20  # bytes of the groups' called clusters in a Hello; a group that does not fit counts as calling all
# Cluster names that are kept for a group. They come from pods and are not trusted, so their number is bounded. The
# control plane keeps CALLED addresses and hosts of a group. An address may be requested by two names, and one more
# address shows the control plane that there are too many.
_MOST_WANTED = 2 * (CALLED + 1)
_LONGEST = 512  # the longest cluster name: a host of 253 characters, a subset of 63, a port, and separators


class Broken(Exception):
    """An update of the control plane cannot be applied: it refers to a group, or to a version of a resource (`Body`),
    that the agent does not have, or its patch does not fit. The stream must be restarted."""


class Body:
    """The bytes of one version of a resource, never parsed here. All groups that have this version share them."""

    __slots__ = ("__weakref__", "body", "name", "version")

    def __init__(self, name: str, version: str, body: bytes) -> None:
        self.name, self.version, self.body = name, version, body


class _Mirror:
    """The resources of one group as the control plane last sent them."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Body]] = {}
        self.revision: int | None = None  # push number of its last update on this stream; None: no update yet
        self.changed_at: dict[str, int] = {}  # type → push number of its last change
        self.followed = True  # whether updates may still refer to this group; `gone` in an update ends that

    def versions(self, type_url: str) -> Iterable[tuple[str, str]]:
        return ((name, body.version) for name, body in self.tables[type_url].items())


class Copy:
    """The config of all groups with a pod on this node, and the reports to the control plane that are not sent yet.

    Callbacks: `changed()` is called when there is something to report, `moved(pod)` when a pod's group has changed, and
    `replied(group)` when the control plane has replied to a request for the group that the method `had` made.
    """

    def __init__(
        self,
        *,
        changed: Callable[[], None] = lambda: None,
        moved: Callable[[str], None] = lambda pod: None,
        replied: Callable[[str], None] = lambda group: None,
    ) -> None:
        self.snapshots = _Reporting(self._accepted)
        self.changed = changed
        self.moved = moved
        self.replied = replied
        self.pods: set[str] = set()
        self._told: set[str] = set()  # pods that the control plane was notified of on this stream
        self._removed: set[str] = set()  # pods of `_told` that were removed since; a pod may have been added again
        self.placements: dict[str, str] = {}  # pod → group
        self._mirrors: dict[str, _Mirror] = {}
        self._bodies: WeakValueDictionary[tuple[str, str, str], Body] = WeakValueDictionary()
        self._wanted: dict[str, dict[str, None]] = defaultdict(dict)  # group → clusters that proxies request by name
        self._unsaid: dict[str, list[str]] = defaultdict(list)  # clusters of `_wanted` not yet sent on this stream
        self._numbers = count(1)
        self._asked: dict[str, int] = {}  # group → number of the last request made by `had`
        self._answered: dict[str, int] = {}  # group → number of the last request of `had` that was replied to
        self._unasked: dict[str, int] = {}  # group → number of its request that is not yet sent on this stream
        self._asked_by_hello: dict[str, int] = {}
        self._listed: list[Body] = []  # bodies listed in the last Hello; they are kept alive until `resumed`
        self._connected = False
        # Acceptances to report, by group and type: versions by name, or None for all that the snapshot's table has as
        # accepted.
        self._acceptances: dict[tuple[str, str], dict[str, str] | None] = {}
        self._refusals: list[Refusal] = []
        self._reported: dict[int, ProxyFrame] = {}

    # Changes of pods

    def add(self, pod: str) -> None:
        self.pods.add(pod)
        self.changed()

    def remove(self, pod: str) -> None:
        self.pods.discard(pod)
        self._removed.add(pod)
        self.placements.pop(pod, None)
        self._drop_unused()
        self.changed()

    def pods_frame(self) -> PodsFrame | None:
        """Return the pods added and removed since the last call or `hello`; None if there are none."""
        removed = self._told & self._removed
        added = self.pods - (self._told - removed)
        self._told, self._removed = set(self.pods), set()
        return PodsFrame(tuple(added), tuple(removed)) if added or removed else None

    def place(self, pod: str, group: str) -> None:
        """Serve `pod` the config of `group`, until the control plane assigns a group to the pod. Does nothing if the
        copy does not have the pod or the group."""
        if pod in self.pods and group in self._mirrors:
            self.placements[pod] = group
            self.moved(pod)

    # Frames of the stream

    def hello(self, node: str) -> Hello:
        """Return the first frame of a new stream of the agent on `node`. It lists the agent's pods and groups, and the
        versions of resources that the agent has. Reports on the previous stream may be lost, so acceptances and sync
        states are reported again from the start, and unsent reports are discarded."""
        self._connected = True
        self._drop_unused()
        self._told, self._removed = set(self.pods), set()
        for mirror in self._mirrors.values():
            mirror.followed = True
        self._refusals.clear()
        self._reported.clear()
        self._acceptances = {}
        bodies: dict[str, list[tuple[str, str]]] = {}
        self._listed = []
        size = 0
        for (type_url, name, version), body in tuple(self._bodies.items()):
            size += len(name.encode()) + len(version) + _ENTRY_BYTES
            if size > _MOST_LISTED:
                break
            bodies.setdefault(type_url, []).append((name, version))
            self._listed.append(body)
        groups = {
            group: frames.digests({type_url: mirror.versions(type_url) for type_url in mirror.tables})
            for group, mirror in self._mirrors.items()
        }
        self._unsaid.clear()
        self._unasked.clear()
        self._asked_by_hello = dict(self._asked)
        wanted, whole = self._said()
        return Hello(node, tuple(self.pods), groups, bodies, builds=True, wanted=wanted, whole=whole)

    def _said(self) -> tuple[dict[str, list[str]], tuple[str, ...]]:
        """Return (wanted, whole), two fields of a Hello. `wanted`: for each group, the names of the clusters and of the
        listeners `0.0.0.0_PORT` that it calls. `whole`: the groups without such a list. A group has no list if it gets
        every service and not only those that it calls, or if its list does not fit: shorter lists come first, and all
        lists together have at most _MOST_SAID bytes."""
        clusters: dict[str, list[str]] = {}
        whole = [group for group in self._mirrors if not self._holds(group)]
        room = _MOST_SAID
        for group, names in sorted(
            ((group, list(self._held(group))) for group in {*self._mirrors, *self._wanted}),
            key=lambda pair: len(pair[1]),
        ):
            room -= sum(len(name.encode()) + _ENTRY_BYTES for name in names)
            if names and room >= 0:
                clusters[group] = names
            elif names and group in self._mirrors:
                whole.append(group)
        return clusters, tuple(dict.fromkeys(whole))

    def want(self, group: Hashable, clusters: Iterable[str]) -> bool:
        """Record that proxies of `group` wait for `clusters`, or have waited for them. Returns whether any of these
        clusters is new and will be requested from the control plane."""
        name = str(group)
        known = self._wanted[name]
        new = [each for each in dict.fromkeys(clusters) if each not in known and _is_sensible(each)]
        new = new[: max(0, _MOST_WANTED - len(known))]
        if not new:
            return False
        self._wanted[name].update(dict.fromkeys(new))
        self._unsaid[name] += new
        self.changed()
        return True

    def had(self, group: Hashable, resources: Iterable[str]) -> int:
        """Record that a proxy of `group` has reconnected, and still has `resources` from its earlier stream: clusters,
        and listeners `0.0.0.0_PORT`. If the group is on demand, what the copy lacks of these is requested from the
        control plane: the hosts of the clusters, and the listeners. The control plane adds them to the group, so that
        the proxy keeps them. Returns the number of the request, for `is_answered`, or 0 if there is nothing to wait
        for."""
        name = str(group)
        resources = tuple(resources)
        self.want(name, (each for each in resources if is_held(CLUSTER, each)))
        if not (there := self._there(name)):
            return 0  # the group gets every service, so a missing cluster no longer exists
        known = {cluster_host(each) for each in there}
        by_host = {host: each for each in resources if (host := cluster_host(each)) and host not in known}
        listeners = self._mirrors[name].tables[LISTENER]
        missing = (*by_host.values(), *(each for each in resources if is_whole_port(each) and each not in listeners))
        if self.want(name, missing):
            self._asked[name] = self._unasked[name] = next(self._numbers)
        number = self._asked.get(name, 0) if missing else 0
        return 0 if self.is_answered(name, number) else number

    def is_answered(self, group: Hashable, number: int) -> bool:
        """Whether the control plane has replied to request `number` of `group`, or never will because the group was
        dropped."""
        name = str(group)
        return name not in self._asked or self._answered.get(name, 0) >= number

    def wanted_frames(self) -> list[WantedFrame]:
        """Return the frames that request wanted clusters not yet sent on this stream, and clear the queue."""
        requests = [
            WantedFrame(name, tuple(clusters), self._unasked.get(name, 0))
            for name, clusters in self._unsaid.items()
            if clusters
        ]
        self._unsaid.clear()
        self._unasked.clear()
        return requests

    def _held(self, group: str) -> dict[str, None]:
        """Return names of resources that the group uses, as the keys of a dict: the clusters that its calls have waited
        for, one cluster of each other host that it calls, and its listeners `0.0.0.0_PORT`."""
        there = self._there(group)
        waiting = (name for name in there if is_held(CLUSTER, name))
        by_host = {host: name for name in there if (host := cluster_host(name))}
        ports = (name for name in self._mirrors[group].tables[LISTENER] if is_whole_port(name)) if there else ()
        return {**dict.fromkeys((*waiting, *by_host.values(), *ports)), **self._wanted.get(group, {})}

    def _there(self, group: str) -> Collection[str]:
        """Return the names of an on-demand group's clusters in the copy: those of the hosts that the group calls. Empty
        for a group that gets every service, and for a group that the copy does not have."""
        return self._mirrors[group].tables.get(CLUSTER, {}) if self._holds(group) else ()

    def _holds(self, group: str) -> bool:
        mirror = self._mirrors.get(group)
        return mirror is not None and RESUMED in mirror.tables.get(LISTENER, {})

    def lost(self) -> None:
        """Handle the end of the stream. No further update can refer to what was sent on it, so groups without a pod on
        this node are dropped; groups with a pod stay and are still served."""
        self._connected = False
        self._listed = []
        for mirror in self._mirrors.values():
            mirror.revision, mirror.followed = None, False
        self._drop_unused()

    def apply(self, update: Update) -> None:
        """Apply an update to mirrors, snapshots and placements. Raises Broken if the update refers to a group, or to a
        version of a resource (`Body`), that the copy does not have, or if a patch does not fit; the groups that come
        before in the update stay applied."""
        for group in update.groups:
            self._apply_group(group)
        for pod, name in update.placements.items():
            if name not in self._mirrors:
                raise Broken(f"pod {pod} is placed in group {name}, which the agent does not have")
            if pod in self.pods and self.placements.get(pod) != name:
                self.placements[pod] = name
                self.moved(pod)
        for name in update.gone:
            if (mirror := self._mirrors.get(name)) is not None:
                mirror.followed = False
        if update.resumed:
            self._listed = []
            for mirror in self._mirrors.values():
                mirror.followed = mirror.followed and mirror.revision is not None
        self._drop_unused()
        self.changed()

    def _apply_group(self, update: GroupUpdate) -> None:
        name = update.group
        mirror = self._mirrors.get(name)
        if mirror is None:
            if not update.fresh:
                raise Broken(f"an update changes group {name}, which the agent does not have")
            mirror = _Mirror()
        changes: dict[str, dict[str, Body | None]] = {}
        if update.like:
            like = self._mirrors.get(update.like)
            if like is None or not update.fresh:
                raise Broken(f"group {name} is based on group {update.like}, which the agent does not have")
            for type_url, bodies in like.tables.items():
                without = frozenset(update.removals.get(type_url, ()))
                changes[type_url] = {each: body for each, body in bodies.items() if each not in without}
        for type_url, entries in update.upserts.items():
            changes.setdefault(type_url, {}).update((entry.name, self._body(type_url, entry)) for entry in entries)
        for type_url in (*mirror.tables, *changes) if update.fresh else update.whole:
            here = changes.setdefault(type_url, {})
            stay = {*here, *update.kept.get(type_url, ())}
            here.update((each, None) for each in mirror.tables.get(type_url, {}) if each not in stay)
        for type_url, names in update.removals.items() if not update.like else ():
            changes.setdefault(type_url, {}).update(dict.fromkeys(names))
        self._mirrors[name] = mirror
        is_first = mirror.revision is None
        mirror.revision, mirror.followed = update.revision, True
        for type_url, resources in changes.items():
            table = mirror.tables.setdefault(type_url, {})
            for each, body in resources.items():
                if body is None:
                    table.pop(each, None)
                else:
                    table[each] = body
            mirror.changed_at[type_url] = update.revision
            # Lift the quarantine of versions that are sent again: the control plane sends one again only if other
            # nodes' reports allow it.
            self.snapshots.forgive(name, type_url, (each for each, body in resources.items() if body is not None))
        if is_first:  # first on this stream: a control plane that has just started has no record of acceptances
            mirror.changed_at = dict.fromkeys(mirror.tables, update.revision)
            self._acceptances.update(((name, type_url), None) for type_url in mirror.tables)
        self.snapshots.update(name, changes)
        self._note_reply(name, max(update.replied, self._asked_by_hello.get(name, 0) if is_first else 0))

    def _note_reply(self, group: str, number: int) -> None:
        if not self.is_answered(group, number):
            self._answered[group] = number
            self.replied(group)

    def _body(self, type_url: str, entry: frames.Entry) -> Body:
        key = (type_url, entry.name, entry.version)
        known = self._bodies.get(key)
        if known is None:
            body = entry.body
            if entry.patch is not None:
                base = self._bodies.get((type_url, entry.name, entry.patch.base))
                try:
                    body = patched(base.body, entry.patch) if base is not None else None
                except Mismatch as mismatch:
                    raise Broken(f"{type_url} {entry.name} {entry.version}: {mismatch}") from mismatch
            if body is None:
                raise Broken(f"{type_url} {entry.name} {entry.version} was never sent")
            known = self._bodies[key] = Body(entry.name, entry.version, body)
        return known

    def _drop_unused(self) -> None:
        """Drop the groups that have no pod on this node, except groups to which updates of the control plane may
        still refer (`_Mirror.followed`)."""
        used = set(self.placements.values())
        for name in [name for name in self._mirrors if name not in used]:
            if not self._mirrors[name].followed:
                del self._mirrors[name]
                self._wanted.pop(name, None)
                self.snapshots.drop(name)
                self._answered.pop(name, None)
                if self._asked.pop(name, None) is not None:
                    self.replied(name)

    # Reports to the control plane

    def refused(self, resource: NackedResource) -> None:
        self._refusals.append(
            Refusal(
                str(resource.group),
                resource.type_url,
                resource.name,
                resource.version,
                resource.message,
                resource.node_id,
            )
        )
        self.changed()

    def report(self, streams: Iterable[StreamStatus]) -> ReportFrame | None:
        """Return what the proxies have accepted and rejected, and how their sync state has changed, since the last
        report; None if nothing has changed. `streams`: the xDS streams of the node's proxies."""
        acceptances, self._acceptances = self._acceptances, {}
        refusals, self._refusals = self._refusals, []
        accepted = [
            acceptance
            for (group, type_url), versions in acceptances.items()
            if (acceptance := self._acceptance(group, type_url, versions)) is not None
        ]
        proxies = {each.stream_id: proxy for each in streams if (proxy := self._proxy(each)) is not None}
        left = tuple(number for number in self._reported if number not in proxies)
        news = tuple(proxy for number, proxy in proxies.items() if self._reported.get(number) != proxy)
        self._reported = proxies
        if not (accepted or refusals or news or left):
            return None
        return ReportFrame(tuple(accepted), tuple(refusals), news, left)

    def _accepted(self, group: Hashable, type_url: str, resources: Iterable[Resource]) -> None:
        if not self._connected:
            return  # all acceptances are reported at the start of the next stream
        pending = self._acceptances.setdefault((str(group), type_url), {})
        if pending is not None:
            pending.update((resource.name, resource.version) for resource in resources)
        self.changed()

    def _acceptance(self, group: str, type_url: str, versions: dict[str, str] | None) -> Acceptance | None:
        mirror, state = self._mirrors.get(group), self.snapshots.state(group)
        if mirror is None or state is None or mirror.revision is None:
            return None
        if versions is None:
            accepted = state.table(type_url).accepted
            versions = {name: resource.version for name, resource in accepted.items()}
        current = mirror.tables.get(type_url, {})
        taken = {name: version for name, version in versions.items() if name in current}
        if current and len(taken) == len(current) and all(current[name].version == taken[name] for name in taken):
            return Acceptance(group, type_url, None, mirror.revision)
        return Acceptance(group, type_url, taken) if taken else None

    def _proxy(self, stream: StreamStatus) -> ProxyFrame | None:
        mirror = self._mirrors.get(str(stream.group))
        if mirror is None or mirror.revision is None:
            return None
        before = self._reported.get(stream.stream_id)
        settled = dict(before.settled) if before is not None else {}
        behind: dict[str, int] = {}
        for type_url, status in stream.types.items():
            if status.sync is Sync.SYNCED:
                settled[type_url] = mirror.changed_at.get(type_url, mirror.revision)
            elif status.sync is Sync.NOT_SENT:
                settled[type_url] = frames.NOT_SENT
            else:
                settled.setdefault(type_url, 0)
                since = before.behind.get(type_url) if before is not None else None
                behind[type_url] = since or mirror.changed_at.get(type_url, mirror.revision)
        refused = {type_url: status.error for type_url, status in stream.types.items() if status.error}
        cluster, version = (str(stream.node.metadata.get(key, "")) for key in ("CLUSTER_ID", "ISTIO_VERSION"))
        return ProxyFrame(
            stream.stream_id,
            stream.node.id,
            str(stream.group),
            settled,
            tuple(refused.values()),
            behind,
            refused,
            cluster,
            version,
        )


def _is_sensible(cluster: str) -> bool:
    """Whether this name may be requested from the control plane: the name of a held call's cluster must contain an
    address that can be parsed, any other name may have at most _LONGEST characters."""
    return bool(held_address(cluster)) if is_held(CLUSTER, cluster) else len(cluster) <= _LONGEST


class _Reporting(Snapshots):
    """Snapshots that call `accepted` with the resources that a proxy accepts."""

    def __init__(self, accepted: Callable[[Hashable, str, Iterable[Resource]], None]) -> None:
        super().__init__()
        self._on_accept = accepted

    def accept(self, group: Hashable, type_url: str, resources: Iterable[Resource]) -> None:
        resources = tuple(resources)
        super().accept(group, type_url, resources)
        self._on_accept(group, type_url, resources)
