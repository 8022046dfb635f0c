"""The control plane's gRPC server for the streams of node agents. `access.py` authenticates the caller, the observer
decides what it may see, and a `NodeStream` handles everything after that. Rule: an agent can harm its own stream and
no other."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable
from contextlib import nullcontext

import grpc
import grpc.aio
import msgspec

from weft.xds import frames
from weft.xds.access import Authenticate, Context, admitted
from weft.xds.node_stream import NodeObserver, NodeStream, ProxyState
from weft.xds.request import StreamRefused
from weft.xds.snapshot import Snapshots
from weft.xds.table import Behind
from weft.xds.turnstile import Turnstile

log = logging.getLogger("weft.xds")

_HELLO_SECONDS = 30.0
# The whole config of a node is megabytes. When all agents connect at once, as after a restart, only this many agents
# get their config at the same time, to bound memory. A slow agent keeps its place for at most ARRIVAL_SECONDS.
ARRIVALS = 4
ARRIVAL_SECONDS = 5.0
STREAMS = 4  # per node: its agent uses one; others may be broken ones that are not detected yet


class NodeStatus(msgspec.Struct, frozen=True):
    node: str
    address: str
    since: float
    pods: int
    groups: tuple[Hashable, ...]
    settled: bool  # the agent has acknowledged every update
    bytes_sent: int
    bytes_received: int


class NodeServer:
    def __init__(
        self, snapshots: Snapshots, observer: NodeObserver, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._snapshots = snapshots
        self._observer = observer
        self._clock = clock
        self._arrivals = Turnstile(ARRIVALS, ARRIVAL_SECONDS)
        self._sessions: set[_Session] = set()

    def handlers(self, authenticate: Authenticate) -> grpc.GenericRpcHandler:
        """Return the gRPC handlers of this service, for a gRPC server that the caller starts. `authenticate`: checks
        the callers."""

        async def serve(_requests: object, context: Context) -> None:
            await self._serve(authenticate, context)

        return grpc.method_handlers_generic_handler(
            frames.SERVICE, {frames.METHOD: grpc.stream_stream_rpc_method_handler(serve)}
        )

    def wake(self) -> None:
        """Wake all streams, because the observer knows the pods' placements now."""
        for session in self._sessions:
            session.stream.placements_changed()

    def proxies(self) -> list[ProxyState]:
        return [proxy for session in self._sessions for proxy in session.stream.proxies()]

    def nodes(self) -> list[NodeStatus]:
        return [session.status() for session in self._sessions]

    async def _serve(self, authenticate: Authenticate, context: Context) -> None:
        principal = await admitted(authenticate, context)
        await context.send_initial_metadata(())
        try:
            async with asyncio.timeout(_HELLO_SECONDS):
                payload = await _read(context)
            if payload is None:
                return
            hello = frames.decode_from_agent(payload)
            if not isinstance(hello, frames.Hello):
                raise StreamRefused("a stream must begin with Hello")
        except (StreamRefused, frames.Malformed, TimeoutError) as refused:
            reason = str(refused) or "no Hello was received"
            log.warning("rejected a stream from %s: it does not begin as an agent's stream: %s", context.peer(), reason)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        try:
            node = self._observer.admit(hello.node, principal)
        except StreamRefused as refused:
            log.warning("rejected the agent of %s: %s", hello.node[:200], refused)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(refused))
        if sum(session.stream.node == node for session in self._sessions) >= STREAMS:
            log.warning("rejected another stream of the agent of %s: the agent has %d streams already", node, STREAMS)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{node} has {STREAMS} streams already")
        await self._run(node, hello, len(payload), context)

    async def _run(self, node: str, hello: frames.Hello, received: int, context: Context) -> None:
        session: _Session | None = None
        unsubscribe: Callable[[], None] = lambda: None  # noqa: E731
        try:
            session = _Session(self, node, hello, received, context)
            self._sessions.add(session)
            unsubscribe = self._observer.subscribe(node, session.stream.placements_changed)
            log.info("the agent of %s has connected, with %d pods", node, len(hello.pods))
            await session.run()
        except (StreamRefused, frames.Malformed) as refused:
            log.warning("ended the stream of the agent of %s: %s", node, refused)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(refused))
        except Behind as behind:
            log.info("the stream of the agent of %s must be restarted: %s", node, behind)
            await context.abort(grpc.StatusCode.ABORTED, f"restart the stream: {behind}")
        finally:
            unsubscribe()
            if session is not None:
                self._sessions.discard(session)
                session.stream.close()
                log.info("the agent of %s has disconnected", node)


class _Session:
    def __init__(self, server: NodeServer, node: str, hello: frames.Hello, received: int, context: Context) -> None:
        self._context = context
        self._arrivals = server._arrivals
        self._since = server._clock()
        self._turn_due = asyncio.Event()
        self._sent, self._received = 0, received
        self.stream = NodeStream(
            server._snapshots, server._observer, node, hello, wake=self._turn_due.set, clock=server._clock
        )

    async def run(self) -> None:
        reading = asyncio.create_task(self._read(), name=f"xds-read-{self.stream.node}")
        reading.add_done_callback(lambda _: self._turn_due.set())
        try:
            while not reading.done():
                self._turn_due.clear()
                async with self._arrivals.inside() if self.stream.resuming else nullcontext():
                    if await self._send():
                        while self.stream.in_flight and not reading.done():
                            await self._turn_due.wait()
                            self._turn_due.clear()
                        continue
                await self._turn_due.wait()
            reading.result()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _send(self) -> bool:
        """Send the next update and return whether there was one. The update object is freed before its bytes are
        written."""
        update = self.stream.turn()
        if update is None:
            return False
        payload = frames.encode(update)
        del update
        self._sent += len(payload)
        await self._context.write(payload)
        return True

    def status(self) -> NodeStatus:
        stream = self.stream
        return NodeStatus(
            node=stream.node,
            address=self._context.peer(),
            since=self._since,
            pods=len(stream.pods),
            groups=tuple(stream.groups),
            settled=stream.settled,
            bytes_sent=self._sent,
            bytes_received=self._received,
        )

    async def _read(self) -> None:
        while (payload := await _read(self._context)) is not None:
            self._received += len(payload)
            self.stream.receive(frames.decode_from_agent(payload))
            self._turn_due.set()


async def _read(context: Context) -> bytes | None:
    payload: object = await context.read()
    return payload if isinstance(payload, bytes) else None
