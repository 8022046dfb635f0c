"""The control plane: reads objects and serves config to proxies. It connects intake, push loop and xDS server, and
keeps the list of current problems. A proxy that connects before the first objects are loaded waits; it is never sent
an empty config."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import grpc
import msgspec

from weft.analyze.finding import coded
from weft.api.document import Change
from weft.base.problem import Problem, Where
from weft.control.analysis import Analysis
from weft.control.connected_proxies import Diagnosis
from weft.control.direct_streams import Direct
from weft.control.intake import Intake, RejectedObject
from weft.control.node_metadata import UnknownProxy, group_of
from weft.control.problems import Problems
from weft.control.push.push import Push
from weft.control.push.schedule import PushTiming
from weft.control.quarantine import Quarantine
from weft.control.relays import Placements, Relays
from weft.history.history import History
from weft.history.object_texts import Contents
from weft.history.persistence import Memory
from weft.mesh.calls import CallReason, Calls
from weft.mesh.mesh import Mesh
from weft.mesh.touched import joined
from weft.model.group import Group
from weft.model.instance import Instance
from weft.model.names import ObjectKey, where_of
from weft.model.settings import Settings
from weft.model.value import Admit, Value
from weft.xds.access import Authenticate
from weft.xds.clients import Peer, Sync
from weft.xds.debug import Debugger
from weft.xds.node_server import NodeServer, NodeStatus
from weft.xds.request import NodeInfo, StreamRefused
from weft.xds.server import XdsServer
from weft.xds.snapshot import Snapshots
from weft.xds.stream import NackedResource

log = logging.getLogger(__name__)

# A group without proxies is kept for this many seconds, so that after a rolling restart or a reconnect its config is
# ready.
IDLE_SECONDS = 60.0


class ProxyStatus(msgspec.Struct, frozen=True):
    """Sync status of one connected proxy. `types`: the sync state of each type. `errors`: the messages of its NACKs."""

    node_id: str
    group: Group
    sync: Sync
    types: dict[str, Sync]
    errors: tuple[str, ...] = ()


class ControlPlane:
    def __init__(
        self,
        *,
        domain: str = "cluster.local",
        admit: Admit | None = None,
        timing: PushTiming | None = None,
        placements: Placements | None = None,
        replica: str = "",
        memory: Memory | None = None,
        egress: bool = False,
    ) -> None:
        """`domain`: the DNS domain of services. `admit`: completes each value before it is added to the mesh; None for
        no change. `timing`: the delays before a push; None for the defaults. `placements`: the known pods and their
        nodes; without them, authenticated streams are rejected. `replica`: the name of this control plane. `memory`:
        where the history is persisted; None: nowhere. `egress`: whether the pods of a mesh on one machine can reach
        hosts outside the mesh."""
        self.mesh = Mesh(Settings(domain=domain))
        self.on_change: list[Callable[[frozenset[ObjectKey]], None]] = []
        self._memory = memory
        # Returns the ports on which a pod's program listens; None if they cannot be found out.
        self.listening: Callable[[Instance], frozenset[int] | None] = lambda _pod: None
        self._problems = Problems()
        self._kept: frozenset[ObjectKey] = frozenset()  # objects whose newest version the source cannot read
        self.history = History(self.mesh, Settings(domain=domain), digest=lambda: self._intake.contents.digest())
        self._intake = Intake(self.mesh, self._problems, domain=domain, admit=admit, note=self.history.note)
        self.egress = egress
        self._analysis = Analysis(self.mesh, self._problems, lambda: self._intake.refused, egress=egress)
        self._snapshots = Snapshots()
        self._push = Push(self.mesh, self._snapshots, self._problems, timing)
        self._server = XdsServer(self._snapshots, self)
        self.owned: set[str] = set()  # listeners that only the owner of this machine can reach
        self._only: dict[str, Group] = {}  # listener → the one group that may connect to it
        self._loaded = False
        self._waiting: set[Group] = set()  # groups that joined before the first objects were loaded
        self._group_of: dict[int, Group] = {}  # stream → its group
        self._streams: Counter[Group] = Counter()  # number of streams per group
        self._idle: dict[Group, asyncio.TimerHandle] = {}  # groups without streams → the timer that drops them
        self._quarantine = Quarantine(self._push, self._snapshots, self._problems, self._where)
        self._direct = Direct(placements, self._server.restart)
        self._node_server = NodeServer(self._snapshots, Relays(self, placements))
        self.diagnosis = Diagnosis(
            self._snapshots, self._server, self._node_server, self._quarantine.said, replica=replica
        )

    # Objects

    def apply(
        self,
        changes: Iterable[Change],
        problems: Iterable[Problem] | None = (),
        values: Iterable[tuple[ObjectKey, tuple[Value, ...]]] = (),
        kept: frozenset[ObjectKey] = frozenset(),
    ) -> None:
        """Apply documents (`changes`) and, in the same step, `values` that need no parsing, so that no proxy sees one
        without the other. `problems`: all current problems of the source itself, such as unreadable files. They replace
        the problems that the source reported before; None keeps those. `kept`: objects whose newest version the source
        cannot read. Their earlier version stays in force, but its problems are no longer listed, because they are about
        a text that does not exist any more."""
        if problems is not None:
            self._problems.put("source", map(coded, problems))
            self._kept = kept
        changes, values = tuple(changes), tuple(values)
        touched, changed = self._intake.documents(changes)
        touched = joined((touched, self._intake.all_values(values)))
        changed |= {key for key, _ in values}
        self._seal()
        if touched:
            self._push.touch(touched)
        if not self._loaded:
            self._loaded = True
            for group in self._waiting:
                try:
                    self._push.join(group)
                except Exception:  # a defect in weft: only the proxies of this group continue to wait
                    log.exception("cannot compute the config of %s; its proxies wait", group)
            self._waiting.clear()
            self._node_server.wake()
        if changes or touched.inbound:
            self._analysis.wake()
        if changed:
            for listener in self.on_change:
                listener(changed)

    def put(self, key: ObjectKey, values: tuple[Value, ...]) -> None:
        """Apply the values of one object that need no parsing, such as an instance from the local engine. An empty
        tuple removes the object."""
        touched = self._intake.values(key, values)
        if self._loaded:
            self._seal()
        if touched:
            self._push.touch(touched)
        if touched.inbound:  # an instance was added or removed, or has other ports; readiness is not analyzed
            self._analysis.wake()

    @property
    def reader(self) -> Intake:
        """The intake, which parses documents as `apply` does. It is for sources of documents that must know whether
        an object is valid."""
        return self._intake

    def _seal(self) -> None:
        has_begun = bool(self.history.begun)
        moment = self.history.seal()
        if self._memory is None:
            self._intake.contents.forget_changes()
        elif not has_begun:
            self._memory.begin(self.history, self._intake.contents)
        else:
            self._memory.add(moment, self._intake.contents)

    def note(self, topic: str, problems: Iterable[Problem]) -> None:
        """Replace all problems that another module reports under `topic`, a name that the other module chooses, such as
        `gateways`. An empty list clears the topic."""
        self._problems.put(topic, problems)

    def problems(self) -> tuple[Problem, ...]:
        # An object that was changed back to what proxies already have causes no push, so no ACK would clear its
        # problem.
        self._quarantine.forget_mended()
        return self._problems.all(without=self._kept)

    def rejected(self) -> tuple[RejectedObject, ...]:
        """Return the objects whose newest version is not in force."""
        return self._intake.rejected(self._kept)

    def faulty(self) -> Mapping[ObjectKey, tuple[Value, ...]]:
        """Return the rejected objects, each with the values that could still be parsed from it."""
        return self._intake.refused

    def refusals(self) -> tuple[Problem, ...]:
        """Return the problems of resources that connected proxies reject."""
        return self._quarantine.standing()

    def refused(self, group: Group) -> dict[tuple[str, str], tuple[Problem, ...]]:
        """Return the problems of resources that proxies of one group reject, by type and name of the resource."""
        return self._quarantine.by_resource(group)

    # For `weft.inspect`

    @property
    def snapshots(self) -> Snapshots:
        """The resources that every group of proxies should have now."""
        return self._snapshots

    @property
    def contents(self) -> Contents:
        """The objects in force, as documents (`history/object_texts.py`)."""
        return self._intake.contents

    def forget_unused(self) -> None:
        """Drop mesh indexes that no group of proxies uses, such as those that a `weft explain` created."""
        self._push.leave_unused()

    def answer_debug(self, debugger: Debugger) -> None:
        """Make `debugger` serve the debug requests on xDS streams."""
        self._server.debugger = debugger

    @property
    def calls(self) -> Calls:
        """The addresses and hosts that groups have called, for on-demand CDS."""
        return self._push.calls

    # Proxies

    async def listen(self, address: str, only: Group | None = None, *, owned: bool = False) -> str:
        """Serve xDS on `unix:/path` or `host:port`. With `only`, the address accepts only proxies of that group.
        `owned` means that only the owner of this machine can reach the address, so it serves debug pages too.
        Returns the address."""
        bound = await self._server.listen(address)
        if owned:
            self.owned.add(bound)
        if only is not None:
            self._only[bound] = only
        return bound

    def handlers(self, listener: str, authenticate: Authenticate) -> tuple[grpc.GenericRpcHandler, ...]:
        """Return the gRPC handlers of discovery, for proxies and for agents, to be added to a gRPC server that is not
        run here. `listener`: the name of that server's address, as it appears in peers. `authenticate` must return a
        `weft.control.access.Principal`."""
        return self._server.handlers(listener, authenticate), self._node_server.handlers(authenticate)

    def proxies(self) -> tuple[ProxyStatus, ...]:
        """Return the status of proxies that are connected directly, and of those behind agents, as the agents report
        them."""
        direct = (
            _proxy_status(
                status.node.id,
                status.group,
                {type_url: each.sync for type_url, each in status.types.items()},
                tuple(each.error for each in status.types.values() if each.error),
            )
            for status in self._server.streams()
        )
        relayed = (
            _proxy_status(state.node_id, state.group, state.types, state.errors)
            for state in self._node_server.proxies()
        )
        return (*direct, *relayed)

    def nodes(self) -> list[NodeStatus]:
        """Return the status of the nodes whose agents are connected to this control plane."""
        return self._node_server.nodes()

    async def wait_synced(self, node_id: str, timeout: float) -> bool:
        return await self._server.wait_synced(node_id, timeout)

    @property
    def pushes(self) -> int:
        return self._snapshots.push

    @property
    def pending(self) -> bool:
        """Whether there are changes that were not pushed to the streams yet."""
        return self._push.pending

    @property
    def analyzing(self) -> bool:
        """Whether there are changes that were not analyzed yet."""
        return self._analysis.pending

    async def pushed(self) -> None:
        """Wait until all changes so far are pushed to the streams."""
        await self._push.pushed()

    @property
    def translation_seconds(self) -> float:
        """CPU time spent on translation so far."""
        return self._push.spent

    async def close(self) -> None:
        self._analysis.close()
        self._push.close()
        if self._memory is not None:
            self._memory.close()
        await self._server.close()
        for timer in self._idle.values():
            timer.cancel()

    # Called by the xDS server (weft.xds.server.StreamObserver)

    def join(self, stream_id: int, node: NodeInfo, peer: Peer) -> Group:
        try:
            group = group_of(node.id, node.metadata, str(node.locality))
        except UnknownProxy as unknown:
            raise StreamRefused(str(unknown)) from unknown
        only = self._only.get(peer.listener)
        if only is not None and group != only:
            raise StreamRefused(f"this socket is only for {only}, but {node.id} claims to be {group}")
        if peer.principal is not None:
            group = self._direct.join(stream_id, node, group, peer.principal)
        self.hold(group)
        self._group_of[stream_id] = group
        return group

    def leave(self, stream_id: int) -> None:
        group = self._group_of.pop(stream_id, None)
        if group is not None:
            self.release(group)
        self._direct.leave(stream_id)

    # A group is kept while a stream or another holder needs it

    @property
    def loaded(self) -> bool:
        """Whether the first objects are loaded."""
        return self._loaded

    def hold(self, group: Group) -> None:
        if self._loaded:
            self._push.join(group)
        else:
            self._waiting.add(group)
        self._streams[group] += 1
        if group in self._idle:
            self._idle.pop(group).cancel()

    def release(self, group: Group) -> None:
        self._streams[group] -= 1
        if not self._streams[group]:
            del self._streams[group]
            self._idle[group] = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._forget, group)

    def taken(self, group: Group, type_url: str) -> None:
        """Called when a proxy of the group has accepted resources of the type `type_url`: the searches for the object
        at fault continue, and mended problems are cleared (`Quarantine.accepted`)."""
        self._quarantine.accepted(group, type_url)

    def acked(self, stream_id: int, type_url: str, nonce: str) -> None:
        group = self._group_of.get(stream_id)
        if group is not None:
            self.taken(group, type_url)

    def nacked(self, stream_id: int, type_url: str, nonce: str, message: str) -> None:
        """Does nothing: a NACK is handled in `on_nack`, which is called with the resource at fault."""

    def wanted(self, stream_id: int, names: tuple[str, ...], had: tuple[str, ...]) -> None:
        group = self._group_of.get(stream_id)
        if group is not None:
            self.want(group, names, had)

    def want(self, group: Group, names: Iterable[str], had: tuple[str, ...] = ()) -> None:
        """Record what the proxies of a group wait for and have. `names`: the on-demand clusters for which their held
        calls wait. `had`: the clusters, and the listeners `0.0.0.0_PORT`, that they have from an earlier stream. If the
        group is on demand, the hosts of the clusters in `had` count as called, so that the group keeps their config."""
        self._push.want(
            group, (*names, *had), with_hosts=not self._loaded or self._push.is_on_demand(group), soon=not had
        )

    def expect(self, group: Group, addresses: Iterable[str]) -> None:
        """Send a group the config of the services at these addresses before they are called. It is called when
        workloads of the group have resolved the addresses by DNS. It does nothing for a group that is not on demand."""
        if self._push.is_on_demand(group):
            services = (service for address in addresses for service in self.mesh.services_at(address))
            self._push.call(group, hosts={service.host for service in services}, why=CallReason.LOOKED_UP)

    def on_nack(self, resource: NackedResource) -> None:
        self._quarantine.refused(resource)

    def _forget(self, group: Group) -> None:
        del self._idle[group]
        self._waiting.discard(group)
        self._push.leave(group)
        self._quarantine.forget(group)

    def _where(self, key: ObjectKey) -> Where:
        origin = next((value.origin for value in self.mesh.get(key) if value.origin is not None), None)
        return where_of(origin, str(key))


def _proxy_status(node_id: str, group: object, types: Mapping[str, Sync], errors: tuple[str, ...]) -> ProxyStatus:
    states = set(types.values())
    sync = Sync.NOT_SENT if states <= {Sync.NOT_SENT} else Sync.STALE if Sync.STALE in states else Sync.SYNCED
    assert isinstance(group, Group)  # noqa: S101 - `join` gives out nothing else
    return ProxyStatus(node_id, group, sync, dict(types), errors)
