"""The node agent's copy of the config of its groups: it applies updates of the control plane, fills the snapshots for
its proxies, and reports back what they accepted and rejected, and how far they are.

The copy is in memory only and stays unchanged while the control plane is away. Rules: a group's snapshot gets its first
update only when the whole group has arrived, so that no proxy removes a resource that has not arrived yet; the mirror
is the control plane's last state, while a snapshot may contain older versions of quarantined resources.
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

# Bytes of body names in a Hello; the control plane accepts twice as many (`request.REQUEST_BYTES`). Bodies that are not
# listed are sent again; a Hello that is too long would always be rejected.
_MOST_LISTED = 8 << 20
_ENTRY_BYTES = 16  # around a name and a version
_MOST_SAID = 4 << 20  # bytes of the groups' called clusters in a Hello; a group that does not fit counts as calling all
# What a pod waits for, or has, comes from the pod and is not trusted. The control plane keeps this many addresses and
# hosts of a group; an address may be requested by two names, and one more shows that there are too many.
_MOST_WANTED = 2 * (CALLED + 1)
_LONGEST = 512  # a host of 253 characters, a subset of 63, a port, and the separators


class Broken(Exception):
    """The control plane refers to something that the agent does not have. The stream must be restarted."""


class Body:
    """The bytes of a resource, never parsed here, shared by all groups that have it."""

    __slots__ = ("__weakref__", "body", "name", "version")

    def __init__(self, name: str, version: str, body: bytes) -> None:
        self.name, self.version, self.body = name, version, body


class _Mirror:
    """One group as the control plane sent it."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Body]] = {}
        self.revision: int | None = None  # of this stream's control plane; None: it has not sent the group
        self.changed_at: dict[str, int] = {}  # by type
        self.followed = True  # whether the control plane may refer to it; it sends `gone` when it stops

    def versions(self, type_url: str) -> Iterable[tuple[str, str]]:
        return ((name, body.version) for name, body in self.tables[type_url].items())


class Copy:
    """Callbacks: `changed`, there is something to report; `moved`, a pod's group has changed; `heard`, the control
    plane has replied to a group's request made by `had`."""

    def __init__(
        self,
        *,
        changed: Callable[[], None] = lambda: None,
        moved: Callable[[str], None] = lambda pod: None,
        heard: Callable[[str], None] = lambda group: None,
    ) -> None:
        self.snapshots = _Reporting(self._accepted)
        self.changed = changed
        self.moved = moved
        self.heard = heard
        self.pods: set[str] = set()
        self._told: set[str] = set()  # the pods that were sent to the control plane
        self._removed: set[str] = set()  # those of them that were removed since; one may have been added again
        self.placements: dict[str, str] = {}  # pod → group
        self._mirrors: dict[str, _Mirror] = {}
        self._bodies: WeakValueDictionary[tuple[str, str, str], Body] = WeakValueDictionary()
        self._wanted: dict[str, dict[str, None]] = defaultdict(dict)  # group → clusters that proxies request by name
        self._unsaid: dict[str, list[str]] = defaultdict(list)  # those not yet sent on this stream
        self._numbers = count(1)
        self._asked: dict[str, int] = {}  # group → number of the last request made by `had`
        self._answered: dict[str, int] = {}  # group → number of the last one with a reply
        self._unasked: dict[str, int] = {}  # requests not yet sent on this stream
        self._asked_by_hello: dict[str, int] = {}
        self._listed: list[Body] = []  # bodies listed in the last Hello must be kept until `resumed`
        self._connected = False
        # To be reported: versions by name, or None for everything that the table has as accepted.
        self._acceptances: dict[tuple[str, str], dict[str, str] | None] = {}
        self._refusals: list[Refusal] = []
        self._reported: dict[int, ProxyFrame] = {}

    # Pods

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
        """Changes of pods since the last frame; None if there are none."""
        removed = self._told & self._removed
        added = self.pods - (self._told - removed)
        self._told, self._removed = set(self.pods), set()
        return PodsFrame(tuple(added), tuple(removed)) if added or removed else None

    def place(self, pod: str, group: str) -> None:
        """Serve a pod this group's config until the control plane sends a placement."""
        if pod in self.pods and group in self._mirrors:
            self.placements[pod] = group
            self.moved(pod)

    # The stream

    def hello(self, node: str) -> Hello:
        """The first frame of a stream. It repeats the state; reports of the previous stream may be lost, so they start
        again."""
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
        """The clusters that each group calls, as far as there is room, the shorter lists first; and the groups without
        such a list, because they are not on demand or their list is too long."""
        said: dict[str, list[str]] = {}
        whole = [group for group in self._mirrors if not self._holds(group)]
        room = _MOST_SAID
        for group, held in sorted(
            ((group, list(self._held(group))) for group in {*self._mirrors, *self._wanted}),
            key=lambda pair: len(pair[1]),
        ):
            room -= sum(len(name.encode()) + _ENTRY_BYTES for name in held)
            if held and room >= 0:
                said[group] = held
            elif held and group in self._mirrors:
                whole.append(group)
        return said, tuple(dict.fromkeys(whole))

    def want(self, group: Hashable, clusters: Iterable[str]) -> bool:
        """Proxies of a group wait for these clusters, or have done so. Returns whether there is anything new to
        send."""
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
        """A proxy of a group has reconnected and has these clusters and listeners of whole ports. If some of them are
        missing here, but would not be if the control plane knew of them, they are requested. Returns the number of the
        request (`is_answered`), or 0 if there is nothing to wait for."""
        name = str(group)
        resources = tuple(resources)
        self.want(name, (each for each in resources if is_held(CLUSTER, each)))
        if not (there := self._there(name)):
            return 0  # the group has every service, so a missing cluster is gone
        known = {cluster_host(each) for each in there}
        by_host = {host: each for each in resources if (host := cluster_host(each)) and host not in known}
        listeners = self._mirrors[name].tables[LISTENER]
        missing = (*by_host.values(), *(each for each in resources if is_whole_port(each) and each not in listeners))
        if self.want(name, missing):
            self._asked[name] = self._unasked[name] = next(self._numbers)
        number = self._asked.get(name, 0) if missing else 0
        return 0 if self.is_answered(name, number) else number

    def is_answered(self, group: Hashable, number: int) -> bool:
        """Whether the request has its reply, or will get none because the group is gone."""
        name = str(group)
        return name not in self._asked or self._answered.get(name, 0) >= number

    def wanted_frames(self) -> list[WantedFrame]:
        """The frames about wanted clusters that are to be sent now."""
        unsaid = [
            WantedFrame(name, tuple(held), self._unasked.get(name, 0)) for name, held in self._unsaid.items() if held
        ]
        self._unsaid.clear()
        self._unasked.clear()
        return unsaid

    def _held(self, group: str) -> dict[str, None]:
        """Clusters that were waited for, one cluster of each other host that the group has because it calls it, and the
        listeners of whole ports."""
        there = self._there(group)
        held = (name for name in there if is_held(CLUSTER, name))
        by_host = {host: name for name in there if (host := cluster_host(name))}
        ports = (name for name in self._mirrors[group].tables[LISTENER] if is_whole_port(name)) if there else ()
        return {**dict.fromkeys((*held, *by_host.values(), *ports)), **self._wanted.get(group, {})}

    def _there(self, group: str) -> Collection[str]:
        """The clusters of a group that is on demand, which it has because it calls them; else none."""
        return self._mirrors[group].tables.get(CLUSTER, {}) if self._holds(group) else ()

    def _holds(self, group: str) -> bool:
        mirror = self._mirrors.get(group)
        return mirror is not None and RESUMED in mirror.tables.get(LISTENER, {})

    def lost(self) -> None:
        """The stream has ended: the control plane no longer refers to anything here."""
        self._connected = False
        self._listed = []
        for mirror in self._mirrors.values():
            mirror.revision, mirror.followed = None, False
        self._drop_unused()

    def apply(self, update: Update) -> None:
        """Raises Broken."""
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
            # A version that is sent again is tried again: the control plane knows the other nodes' reports about it.
            self.snapshots.forgive(name, type_url, (each for each, body in resources.items() if body is not None))
        if is_first:  # on this stream: a control plane that has just started does not know what proxies have accepted
            mirror.changed_at = dict.fromkeys(mirror.tables, update.revision)
            self._acceptances.update(((name, type_url), None) for type_url in mirror.tables)
        self.snapshots.update(name, changes)
        self._hear(name, max(update.heard, self._asked_by_hello.get(name, 0) if is_first else 0))

    def _hear(self, group: str, number: int) -> None:
        if not self.is_answered(group, number):
            self._answered[group] = number
            self.heard(group)

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
        """Forget groups without a pod on this node. While the control plane follows a group it may refer to it; it
        sends `gone` when it stops."""
        used = set(self.placements.values())
        for name in [name for name in self._mirrors if name not in used]:
            if not self._mirrors[name].followed:
                del self._mirrors[name]
                self._wanted.pop(name, None)
                self.snapshots.drop(name)
                self._answered.pop(name, None)
                if self._asked.pop(name, None) is not None:
                    self.heard(name)

    # Reports

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
        """The changes since the last report; None if there are none. `streams`: those of the node's proxies."""
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
            return  # everything accepted is reported at the start of the next stream
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
    """Whether the control plane can interpret the name."""
    return bool(held_address(cluster)) if is_held(CLUSTER, cluster) else len(cluster) <= _LONGEST


class _Reporting(Snapshots):
    """Snapshots that report what proxies accept."""

    def __init__(self, accepted: Callable[[Hashable, str, Iterable[Resource]], None]) -> None:
        super().__init__()
        self._on_accept = accepted

    def accept(self, group: Hashable, type_url: str, resources: Iterable[Resource]) -> None:
        resources = tuple(resources)
        super().accept(group, type_url, resources)
        self._on_accept(group, type_url, resources)
