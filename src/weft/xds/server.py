"""The gRPC server of ADS or SDS: its listening sockets, and the streams of its clients.

The first request of a stream identifies the client's node, the observer returns the group of that node, and an
`XdsStream` handles everything after that. Rule: a client can harm its own stream and no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from itertools import count
from typing import Any, Protocol

import grpc
import grpc.aio

from weft.xds.access import Authenticate, Context, admitted
from weft.xds.clients import Peer, StreamStatus, type_status
from weft.xds.debug import Debugger, is_question, serve_questions
from weft.xds.on_demand import is_whole_port
from weft.xds.request import REQUEST_BYTES, NodeInfo, StreamRefused, XdsRequest, parse
from weft.xds.response import CACHE_BYTES, Dialect, Responses
from weft.xds.snapshot import Snapshots
from weft.xds.stream import Acked, Nacked, NackedResource, XdsStream
from weft.xds.table import Behind
from weft.xds.types import CLUSTER, LISTENER, is_held

log = logging.getLogger("weft.xds")


class StreamObserver(Protocol):
    """Assigns clients to groups and is notified of their ACKs and NACKs. An exception of `join` ends the new stream. An
    exception of any other method is logged and has no effect on streams."""

    def join(self, stream_id: int, node: NodeInfo, peer: Peer) -> Hashable | Awaitable[Hashable]:
        """Return the group of a new client, directly or as an awaitable. Raises StreamRefused to reject the client. The
        group may get its first state later; the client waits for it. If a client disconnects while the awaitable is
        pending, it has not joined and `leave` is not called. `peer`: the listening address that the client connected
        to, the client's own address, and its principal."""

    def leave(self, stream_id: int) -> None: ...

    def acked(self, stream_id: int, type_url: str, nonce: str) -> None: ...

    def nacked(self, stream_id: int, type_url: str, nonce: str, message: str) -> None: ...

    def wanted(self, stream_id: int, names: tuple[str, ...], had: tuple[str, ...]) -> Awaitable[None] | None:
        """Called when the client of a stream requests the clusters `names` for held calls (`types.is_held`), or when it
        has resources in `had` from an earlier stream: clusters, or listeners `0.0.0.0_PORT`. The observer may add the
        clusters `names` to the group; those that do not exist are never reported to the client as missing. Returns None
        or an awaitable. With an awaitable, nothing is sent to the client until the awaitable is done, because resources
        that the client has may not have arrived at this server yet."""

    def on_nack(self, resource: NackedResource) -> None:
        """Called when a client's NACK was traced to one resource. This version of the resource is not sent to the
        client again."""


class ListenError(Exception):
    """The server cannot listen on an address."""


# Streams live for weeks. Without pings, a peer that has vanished is noticed only at the next push, and middleboxes drop
# idle connections after minutes. Clients (Envoy, gRPC) ping at most every 30 s by default, so a minimum interval of 10
# s accepts their pings.
OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.max_concurrent_streams", 128),
    ("grpc.max_receive_message_length", REQUEST_BYTES),
    ("grpc.max_send_message_length", 256 << 20),
    ("grpc.so_reuseport", 0),  # without this, two servers could share a port unnoticed
)

SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
SECRET_SERVICE = "envoy.service.secret.v3.SecretDiscoveryService"  # noqa: S105 - a name, not a secret
_METHODS = {
    SERVICE: {
        "StreamAggregatedResources": Dialect.STATE_OF_THE_WORLD,
        "DeltaAggregatedResources": Dialect.DELTA,
    },
    SECRET_SERVICE: {
        "StreamSecrets": Dialect.STATE_OF_THE_WORLD,
        "DeltaSecrets": Dialect.DELTA,
    },
}


class XdsServer:
    """Serves the snapshots to clients over ADS or SDS (`service`), on any number of addresses. `shared_bytes` limits
    the cache of responses that streams share. `most_streams` limits the streams at one address over all of its
    connections."""

    def __init__(
        self,
        snapshots: Snapshots,
        observer: StreamObserver,
        *,
        service: str = SERVICE,
        shared_bytes: int = CACHE_BYTES,
        most_streams: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._snapshots = snapshots
        self._observer = observer
        self._service = service
        self._clock = clock
        self._most_streams = most_streams
        self._open: Counter[str] = Counter()  # listener → its streams, including those without a request yet
        self._responses = Responses(shared_bytes)
        self._servers: dict[str, grpc.aio.Server] = {}
        self._sessions: dict[int, _Session] = {}
        self._stream_ids = count(1)
        self._waiting: dict[str, list[tuple[frozenset[str], asyncio.Future[None]]]] = {}
        self.debugger: Debugger | None = None  # serves debug requests; if None, they are rejected

    async def listen(self, address: str, credentials: grpc.ServerCredentials | None = None) -> str:
        """Serve on `unix:/path` or `host:port`, in addition to other addresses. Port 0 picks a free port.
        `credentials`: those of TLS; None for plaintext. Returns the address with the actual port. The caller is
        responsible for the permissions of a socket's directory."""
        server = grpc.aio.server(options=OPTIONS)
        try:
            if credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, credentials)
        except RuntimeError as error:
            await server.stop(None)
            raise ListenError(
                f"cannot serve xDS on {address}: it is in use, or its directory is missing ({error})"
            ) from error
        bound = address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
        server.add_generic_rpc_handlers((self.handlers(bound),))
        await server.start()
        self._servers[bound] = server
        return bound

    async def stop(self, address: str, grace: float | None = None) -> None:
        """Stop serving on one address. Its streams end after `grace` seconds; None: at once."""
        server = self._servers.pop(address, None)
        if server is not None:
            await server.stop(grace)

    async def close(self, grace: float | None = None) -> None:
        await asyncio.gather(*(self.stop(address, grace) for address in tuple(self._servers)))

    def restart(self, stream_id: int, why: str) -> None:
        """End a stream, with the reason `why`, so that its client reconnects. The client then sends the versions it
        has, and gets only what differs."""
        session = self._sessions.get(stream_id)
        if session is not None:
            session.restart(why)

    def streams(self) -> list[StreamStatus]:
        return [session.status() for session in self._sessions.values()]

    def watches(self, stream_id: int) -> dict[str, tuple[str, ...]]:
        """Return, for each type, the names that the client of a stream has subscribed to explicitly; {} if the stream
        has ended. A wildcard is not among the names: for a client that subscribed only to a wildcard, the tuple is
        empty."""
        session = self._sessions.get(stream_id)
        subscriptions = session.stream.subscriptions if session is not None else {}
        return {type_url: tuple(sorted(each.names)) for type_url, each in subscriptions.items()}

    async def wait_synced(
        self, node_id: str, timeout: float, types: frozenset[str] = frozenset({CLUSTER, LISTENER})
    ) -> bool:
        """Wait until a stream of this node has subscribed to these types and has acknowledged everything in its group's
        snapshot. Returns False after `timeout` seconds."""
        if any(each.node.id == node_id and each.stream.synced(types) for each in self._sessions.values()):
            return True
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = (types, done)
        self._waiting.setdefault(node_id, []).append(waiting)
        try:
            async with asyncio.timeout(timeout):
                await done
        except TimeoutError:
            return False
        else:
            return True
        finally:
            self._waiting[node_id].remove(waiting)
            if not self._waiting[node_id]:
                del self._waiting[node_id]

    def handlers(self, listener: str, authenticate: Authenticate | None = None) -> grpc.GenericRpcHandler:
        """Return the gRPC handlers of this service, for this server's own gRPC server or for another one.
        `listener`: the name of the listening address, which the observer sees as `Peer.listener` and to which the
        limit of streams applies. `authenticate`: checks the callers; None if callers need not authenticate."""

        def behavior(dialect: Dialect) -> Callable[[Any, Context], Awaitable[None]]:
            async def serve(_requests: Any, context: Context) -> None:
                if self._most_streams is not None and self._open[listener] >= self._most_streams:
                    what = f"{self._most_streams} streams are already open at this address"
                    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, what)
                self._open[listener] += 1
                try:
                    await self._serve(dialect, listener, authenticate, context)
                finally:
                    self._open[listener] -= 1
                    if not self._open[listener]:
                        del self._open[listener]

            return serve

        # gRPC gets no serializers: requests are parsed where their errors can be returned, and responses are bytes
        # already.
        return grpc.method_handlers_generic_handler(
            self._service,
            {
                name: grpc.stream_stream_rpc_method_handler(behavior(dialect))
                for name, dialect in _METHODS[self._service].items()
            },
        )

    async def _serve(
        self, dialect: Dialect, listener: str, authenticate: Authenticate | None, context: Context
    ) -> None:
        principal = await admitted(authenticate, context)
        await context.send_initial_metadata(())  # some clients wait for headers before their first request
        try:
            payload = await _read(context)
            if payload is None:
                return
            request, node = parse(dialect, payload)
            if node is None or not node.id:
                raise StreamRefused("the first request of a stream must have a node with an id")
        except StreamRefused as refused:
            log.warning("rejected a stream at %s: it does not begin as an xDS client's stream: %s", listener, refused)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(refused))
        stream_id, peer = next(self._stream_ids), Peer(listener, context.peer(), principal)
        if is_question(request):
            await serve_questions(self.debugger, dialect, peer, request, context)
            return
        try:
            joined = self._observer.join(stream_id, node, peer)
            group: Hashable = await joined if inspect.isawaitable(joined) else joined
        except StreamRefused as refused:
            log.warning("rejected the xDS stream of %s at %s: %s", node.id, listener, refused)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(refused))
        session = _Session(self, stream_id, node, peer, dialect, group, context)
        self._sessions[session.stream_id] = session
        try:
            await session.run(request)
        except StreamRefused as refused:
            log.warning("ended the xDS stream of %s: %s", node.id, refused)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(refused))
        except Behind as behind:
            log.info("the xDS stream of %s must be restarted: %s", node.id, behind)
            await context.abort(grpc.StatusCode.ABORTED, f"restart the stream: {behind}")
        finally:
            del self._sessions[session.stream_id]
            session.stream.close()
            self._tell(lambda: self._observer.leave(session.stream_id))

    def _tell(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            log.exception("the observer of the xDS server failed; streams continue")

    def _check_synced(self, session: _Session) -> None:
        for types, done in self._waiting.get(session.node.id, ()):
            if not done.done() and session.stream.synced(types):
                done.set_result(None)


class _Session:
    """One connected client: a task that reads its requests, while the caller's task writes the responses."""

    def __init__(
        self,
        server: XdsServer,
        stream_id: int,
        node: NodeInfo,
        peer: Peer,
        dialect: Dialect,
        group: Hashable,
        context: Context,
    ) -> None:
        self.stream_id = stream_id
        self.node = node
        self._server = server
        self._peer = peer
        self._group = group
        self._context = context
        self._since = server._clock()
        self._turn_due = asyncio.Event()
        self._awaited: set[asyncio.Future[None]] = set()
        self.stream = XdsStream(
            server._snapshots,
            group,
            dialect,
            node_id=node.id,
            responses=server._responses,
            wake=self._turn_due.set,
        )

    async def run(self, first: XdsRequest) -> None:
        self._receive(first)
        reading = asyncio.create_task(self._read(), name=f"xds-read-{self.node.id}")
        reading.add_done_callback(lambda _: self._turn_due.set())
        try:
            while not reading.done():
                self._turn_due.clear()
                if not self._awaited:
                    for response in self.stream.turn(self._server._clock()):
                        await self._context.write(response.payload)
                    self._server._check_synced(self)
                await self._until_turn()
            reading.result()
        finally:
            ending = (reading, *self._awaited)
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    def restart(self, why: str) -> None:
        for awaited in self._awaited:
            awaited.cancel()
        self._awaited.clear()
        self.stream.restart(why)

    def status(self) -> StreamStatus:
        return StreamStatus(
            stream_id=self.stream_id,
            node=self.node,
            group=self._group,
            peer=self._peer,
            dialect=self.stream.dialect,
            since=self._since,
            types={
                type_url: type_status(subscription, settled=self.stream.is_settled(type_url))
                for type_url, subscription in self.stream.subscriptions.items()
            },
        )

    async def _read(self) -> None:
        while (payload := await _read(self._context)) is not None:
            request, _ = parse(self.stream.dialect, payload)
            self._receive(request)
            self._turn_due.set()

    def _receive(self, request: XdsRequest) -> None:
        observer, tell = self._server._observer, self._server._tell
        # A client sends the versions that it has once, with its first request of a type. Versions in later requests are
        # ignored: processing them would delay other streams.
        had = tuple(request.versions) if request.type_url not in self.stream.subscriptions else ()
        outcome = self.stream.receive(request, self._server._clock())
        if request.type_url == CLUSTER:
            subscribed = self.stream.subscriptions[CLUSTER].names
            requested = tuple(name for name in request.names if is_held(CLUSTER, name) and name in subscribed)
            if requested or had:
                tell(lambda: self._await(observer.wanted(self.stream_id, requested, had)))
        elif request.type_url == LISTENER and (had := tuple(name for name in had if is_whole_port(name))):
            tell(lambda: self._await(observer.wanted(self.stream_id, (), had)))
        if isinstance(outcome, Acked):
            tell(lambda: observer.acked(self.stream_id, outcome.type_url, outcome.nonce))
        elif isinstance(outcome, Nacked):
            log.warning("%s rejected push %s of %s: %s", self.node.id, outcome.nonce, outcome.type_url, outcome.message)
            tell(lambda: observer.nacked(self.stream_id, outcome.type_url, outcome.nonce, outcome.message))
            if (resource := outcome.resource) is not None:
                tell(lambda: observer.on_nack(resource))

    def _await(self, answer: Awaitable[None] | None) -> None:
        if answer is None:
            return
        task = asyncio.ensure_future(answer)
        self._awaited.add(task)
        task.add_done_callback(self._go_on)

    def _go_on(self, task: asyncio.Future[None]) -> None:
        self._awaited.discard(task)
        self._turn_due.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error(
                "cannot get the clusters and listeners that %s has from its earlier stream; it is served without them",
                self.node.id,
                exc_info=error,
            )

    async def _until_turn(self) -> None:
        due = self.stream.wake_at
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if due is None else max(0.0, due - self._server._clock())):
                await self._turn_due.wait()


async def _read(context: Context) -> bytes | None:
    payload: Any = await context.read()
    return None if payload is grpc.aio.EOF else bytes(payload)
