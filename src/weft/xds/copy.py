"""The agent's copy of what its groups should have: updates of the control plane in, snapshots for its proxies out, and
back what they took, refused, and how far they are.

It is in memory alone, and stays as it is while the control plane is away. Rules: a group's snapshot has its first
update only when all of it is here, so no proxy is told that something is gone that has not come yet; the mirror is what
the control plane said last, while the snapshots may hold something older, in quarantine.
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
from weft.xds.on_demand import CALLED, RESUMED, cluster_host, held_address
from weft.xds.patch import Mismatch, patched
from weft.xds.snapshot import Snapshots
from weft.xds.stream import NackedResource
from weft.xds.table import Resource
from weft.xds.types import CLUSTER, LISTENER, is_held

# Bytes of names of bodies in a hello, of which the control plane takes twice as many (`request.REQUEST_BYTES`). What is
# not named is sent again; a hello that is too long would never get through.
_MOST_LISTED = 8 << 20
_ENTRY_BYTES = 16  # around a name and a version
_MOST_SAID = 4 << 20  # and of what groups call: whose list has no room is taken to call all that is listed
# What a pod says that it waits for, or has, is its own word. Of a group a control plane keeps so many addresses and
# hosts; an address may be waited for by two names, and one more tells that there are too many.
_MOST_WANTED = 2 * (CALLED + 1)
_LONGEST = 512  # a host of 253 characters, a subset of 63, a port, and what is around them


class Broken(Exception):
    """The control plane refers to something that is not here. The stream must start anew, with what there is."""


class Body:
    """Bytes that nobody here reads, shared by every group that has them."""

    __slots__ = ("__weakref__", "body", "name", "version")

    def __init__(self, name: str, version: str, body: bytes) -> None:
        self.name, self.version, self.body = name, version, body


class _Mirror:
    """One group as the control plane described it."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Body]] = {}
        self.revision: int | None = None  # of this stream's control plane; None: it has not spoken of the group
        self.changed_at: dict[str, int] = {}  # by type
        self.followed = True  # whether the control plane may build upon it, and will say when it does not any more

    def versions(self, type_url: str) -> Iterable[tuple[str, str]]:
        return ((name, body.version) for name, body in self.tables[type_url].items())


class Copy:
    """`changed` is told that there is something to report; `moved`, that a pod has another group than before;
    `heard`, that the control plane has answered for a group what was asked by `had`."""

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
        self._told: set[str] = set()  # the pods that the control plane knows of
        self._removed: set[str] = set()  # of these, those that went since; one may have come back
        self.placements: dict[str, str] = {}  # pod → group
        self._mirrors: dict[str, _Mirror] = {}
        self._bodies: WeakValueDictionary[tuple[str, str, str], Body] = WeakValueDictionary()
        self._wanted: dict[str, dict[str, None]] = defaultdict(dict)  # group → clusters that proxies ask for by name
        self._unsaid: dict[str, list[str]] = defaultdict(list)  # of these, what was not said on this stream
        self._numbers = count(1)
        self._asked: dict[str, int] = {}  # group → number of the last question
        self._answered: dict[str, int] = {}  # and of the last that was answered
        self._unasked: dict[str, int] = {}  # of these, what was not said on this stream
        self._asked_by_hello: dict[str, int] = {}
        self._listed: list[Body] = []  # what the last hello named must stay until `resumed`
        self._connected = False
        # To be reported: versions by name, or None for whatever the table says is accepted.
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
        """What the control plane is to know of pods; None: it does."""
        removed = self._told & self._removed
        added = self.pods - (self._told - removed)
        self._told, self._removed = set(self.pods), set()
        return PodsFrame(tuple(added), tuple(removed)) if added or removed else None

    def place(self, pod: str, group: str) -> None:
        """Serve a pod this group's config, until the control plane knows better."""
        if pod in self.pods and group in self._mirrors:
            self.placements[pod] = group
            self.moved(pod)

    # The stream

    def hello(self, node: str) -> Hello:
        """A stream begins. What was said on the one before is known; what was reported may not be."""
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
        """What each group calls, as far as there is room, the shorter lists first; and the groups of which that is not
        said, for nobody here knows, or it is too much."""
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
        """Proxies of a group wait for these, or have done so. Returns whether there is anything new to be said."""
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

    def had(self, group: Hashable, clusters: Iterable[str]) -> int:
        """A proxy of a group has come back, and has these. If there are some that are not here, but would be if the
        control plane knew that they are called, it is asked; returns the number of the question (`is_answered`), or 0
        if nothing here is to be waited for."""
        name = str(group)
        clusters = tuple(clusters)
        self.want(name, (each for each in clusters if is_held(CLUSTER, each)))
        if not (there := self._there(name)):
            return 0  # everything is told of, and what is not here is gone
        known = {cluster_host(each) for each in there}
        by_host = {host: each for each in clusters if (host := cluster_host(each)) and host not in known}
        if self.want(name, by_host.values()):
            self._asked[name] = self._unasked[name] = next(self._numbers)
        number = self._asked.get(name, 0) if by_host else 0
        return 0 if self.is_answered(name, number) else number

    def is_answered(self, group: Hashable, number: int) -> bool:
        """Or nobody will answer any more, for the group is gone."""
        name = str(group)
        return name not in self._asked or self._answered.get(name, 0) >= number

    def wanted_frames(self) -> list[WantedFrame]:
        """What is to be said of that now."""
        unsaid = [
            WantedFrame(name, tuple(held), self._unasked.get(name, 0)) for name, held in self._unsaid.items() if held
        ]
        self._unsaid.clear()
        self._unasked.clear()
        return unsaid

    def _held(self, group: str) -> dict[str, None]:
        """What was waited for, and what else is there because somebody calls it."""
        there = self._there(group)
        held = (name for name in there if is_held(CLUSTER, name))
        by_host = {host: name for name in there if (host := cluster_host(name))}
        return {**dict.fromkeys(held), **dict.fromkeys(by_host.values()), **self._wanted.get(group, {})}

    def _there(self, group: str) -> Collection[str]:
        """The clusters of a group, if they are there because somebody calls them: where calls are held."""
        return self._mirrors[group].tables.get(CLUSTER, {}) if self._holds(group) else ()

    def _holds(self, group: str) -> bool:
        mirror = self._mirrors.get(group)
        return mirror is not None and RESUMED in mirror.tables.get(LISTENER, {})

    def lost(self) -> None:
        """The stream has ended: the control plane relies on nothing that is here any more."""
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
                raise Broken(f"pod {pod} is placed in group {name}, which is not here")
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
                raise Broken(f"a change of group {name}, which is not here")
            mirror = _Mirror()
        changes: dict[str, dict[str, Body | None]] = {}
        if update.like:
            like = self._mirrors.get(update.like)
            if like is None or not update.fresh:
                raise Broken(f"group {name} is to be like {update.like}, which is not here")
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
            # What comes again is to be tried again: the control plane knows what others said about it.
            self.snapshots.forgive(name, type_url, (each for each, body in resources.items() if body is not None))
        if is_first:  # of this stream: a control plane that has just started does not know what proxies have taken
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
        """Forget groups of no pod here. While the control plane follows one it may refer to it, and says when it does
        not any more."""
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
        """What has changed since the last one; None: nothing. `streams`: those of the proxies here."""
        acceptances, self._acceptances = self._acceptances, {}
        refusals, self._refusals = self._refusals, []
        accepted = [
            found
            for (group, type_url), versions in acceptances.items()
            if (found := self._acceptance(group, type_url, versions)) is not None
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
            return  # the next hello begins with all of it
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
    """Whether a control plane could make anything of it."""
    return bool(held_address(cluster)) if is_held(CLUSTER, cluster) else len(cluster) <= _LONGEST


class _Reporting(Snapshots):
    """Snapshots that tell what proxies take."""

    def __init__(self, accepted: Callable[[Hashable, str, Iterable[Resource]], None]) -> None:
        super().__init__()
        self._told = accepted

    def accept(self, group: Hashable, type_url: str, resources: Iterable[Resource]) -> None:
        resources = tuple(resources)
        super().accept(group, type_url, resources)
        self._told(group, type_url, resources)
