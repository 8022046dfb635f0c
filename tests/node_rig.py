"""A control plane and an agent without a connection: the test carries every message, as bytes."""

from __future__ import annotations

from collections import Counter

import msgspec

from weft.xds import frames
from weft.xds.copy import Copy
from weft.xds.layer import Layer
from weft.xds.node_stream import NodeStream
from weft.xds.snapshot import Snapshots
from weft.xds.types import CLUSTER


class Blob(msgspec.Struct, frozen=True):
    name: str
    version: str
    body: bytes
    parts: tuple[bytes, ...] = ()


def body(name: str, version: str) -> Blob:
    return Blob(name, version, f"{name}@{version}".encode() * 10)


def joined(name: str, version: str) -> Blob:
    """A resource that is mostly the same in all versions."""
    common = [f"{name} has part {number}; ".encode() for number in range(8)]
    common.insert(int(version) % 8, f"version {version}; ".encode())
    parts = (*common, f"{name}@{version}".encode())
    return Blob(name, version, b"".join(parts), parts)


def size_of(update: frames.Update) -> int:
    return len(frames.encode(update))


class Control:
    """Groups are named by themselves."""

    def __init__(self, placed: dict[str, str] | None, layers: dict[str, Layer] | None = None) -> None:
        """`layers` is by group."""
        self.snapshots = Snapshots()
        self.layers = layers or {}
        self.make = joined if layers else body
        for group, layer in self.layers.items():
            self.snapshots.update(group, {}, layer)
        self.placed = placed
        self.held: Counter[str] = Counter()
        self.heard: list = []
        self.wanted: list = []  # group, names, and whether the group was held by then
        self.called: dict[str, str] = {}  # clusters that a group gets once they are called, and their versions
        self._told: list = []

    def put(self, group, type_url, **versions):
        self.snapshots.update(group, {type_url: {name: self.make(name, version) for name, version in versions.items()}})

    def put_layer(self, group, type_url, name, version):
        made = self.make(name, version) if version else None
        self.snapshots.update_layer(self.layers[group], {type_url: {name: made}})

    def put_all(self, groups, type_url, **versions):
        shared = {name: self.make(name, version) for name, version in versions.items()}
        for group in groups:
            self.snapshots.update(group, {type_url: shared})

    def remove(self, group, type_url, name):
        self.snapshots.update(group, {type_url: {name: None}})

    def has(self, group):
        return contents(self.snapshots, group)

    def moved(self):
        for changed in self._told:
            changed()

    def anew(self):
        """The same objects in a new process: revisions start again, and no acknowledgement is recorded."""
        other = Control(self.placed)
        other.make = self.make
        for group in self.snapshots.groups():
            tables = self.snapshots.state(group).tables
            other.snapshots.replace(group, {type_url: dict(table.live) for type_url, table in tables.items()})
        return other

    # NodeObserver

    def admit(self, node, principal):
        return node

    def placements(self, node):
        return self.placed

    def subscribe(self, node, changed):
        self._told.append(changed)
        return lambda: self._told.remove(changed)

    def name(self, group):
        return group

    def want(self, group, names, had=()):
        """Existing clusters among `had` are in the group at once; the others arrive some time later."""
        self.wanted.append((group, (*names, *had), bool(self.held[group])))
        for name in had:
            if (name in self.called) and group in self.snapshots.groups():
                self.put(group, CLUSTER, **{name: self.called[name]})

    def hold(self, group):
        self.held[group] += 1

    def release(self, group):
        self.held[group] -= 1
        if not self.held[group]:
            del self.held[group]

    def taken(self, group, type_url):
        self.heard.append((group, type_url))

    def on_nack(self, resource):
        self.heard.append(resource)


class Rig:
    def __init__(self, placed: dict[str, str] | None, layers: dict[str, Layer] | None = None) -> None:
        self.control = Control(placed, layers)
        self.moves: list[str] = []
        self.copy = Copy(moved=self.moves.append)
        self.stream: NodeStream | None = None
        self.connect()

    def connect(self) -> None:
        hello = over_the_line(self.copy.hello("node-1"))
        self.stream = NodeStream(self.control.snapshots, self.control, "node-1", hello, wake=lambda: None)
        self._unsubscribe = self.control.subscribe("node-1", self.stream.placements_changed)

    def disconnect(self) -> None:
        self._unsubscribe()
        self.stream.close()
        self.stream = None
        self.copy.lost()

    def reconnect(self) -> None:
        self.disconnect()
        self.connect()

    def add(self, *pods: str) -> None:
        for pod in pods:
            self.copy.add(pod)

    def remove(self, pod: str) -> None:
        self.copy.remove(pod)

    def turn(self) -> frames.Update | None:
        if (pods := self.copy.pods_frame()) is not None:
            self.stream.receive(over_the_line(pods))
        for wanted in self.copy.wanted_frames():
            self.stream.receive(over_the_line(wanted))
        return self.stream.turn()

    def take(self, update: frames.Update) -> None:
        self.copy.apply(frames.decode_update(frames.encode(update)))
        self.stream.receive(over_the_line(frames.TakenFrame(update.nonce)))

    def settle(self) -> list[frames.Update]:
        """Exchange messages until there are no more. Returns the updates, except a bare `resumed`."""
        sent = []
        for _ in range(1000):
            update = self.turn()
            if update is None:
                return [each for each in sent if each.groups or each.placements or each.gone]
            self.take(update)
            sent.append(update)
        raise AssertionError("the stream does not come to rest")

    def has(self, group):
        return contents(self.copy.snapshots, group)


def over_the_line(frame):
    return frames.decode_from_agent(frames.encode(frame))


def contents(snapshots: Snapshots, group: str) -> dict[str, dict[str, str]]:
    """Type → name → version, from the bodies."""
    state = snapshots.state(group)
    found = {
        type_url: {name: resource.body.decode().rsplit("@", 1)[1] for name, resource in table.live.items()}
        for type_url, table in (state.tables if state else {}).items()
    }
    return {type_url: names for type_url, names in found.items() if names}
