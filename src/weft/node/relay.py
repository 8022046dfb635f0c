"""Config to Envoys: each pod's proxy asks at a socket of its own and gets its group's config from the agent's copy,
which one stream to the control plane keeps filled.

Pods come in with a doorway each; Envoys come in through it. Rules: which pod asks is decided by the socket, and of
which group it is by the control plane, never by what a client says; who cannot be answered yet waits, and is never
told that there is nothing; a control plane that is away takes nothing from anybody.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable
from pathlib import Path

import msgspec

from weft.node.door import Door, DoorError, Doorway
from weft.xds.clients import Peer, StreamStatus
from weft.xds.copy import Copy
from weft.xds.request import NodeInfo, Refused
from weft.xds.server import ListenError, Server
from weft.xds.stream import NackedResource
from weft.xds.upstream import Line, Upstream

log = logging.getLogger("weft.node.relay")

_LOOK_SECONDS = 1.0  # between looks whether the control plane has gone while a proxy waits


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """One that is on this machine."""

    key: str  # as the control plane knows it: its UID
    name: str  # NAMESPACE/POD, for people
    # What pods of the same making have in common. While the control plane is away, a new pod is served what another of
    # the same gets; empty: it waits.
    alike: str = ""


class Relay:
    """`private` is a directory that only root can enter: the servers behind the doors listen there. `line` says how to
    call the control plane, and is asked before every call (`weft.xds.upstream`)."""

    def __init__(self, private: Path, node: str, line: Callable[[], Awaitable[Line]]) -> None:
        self._private = private
        self._copy = Copy(moved=self._moved)
        self._server = Server(self._copy.snapshots, self)
        self.upstream = Upstream(self._copy, node, line, streams=self._server.streams)
        self._pods: dict[str, tuple[Pod, Door, str]] = {}  # by key
        self._by_address: dict[str, Pod] = {}  # by the address that was called
        self._streams: dict[int, str] = {}  # number → the pod's key
        self._waiting: dict[str, list[asyncio.Event]] = defaultdict(list)
        self._numbers = itertools.count()
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._running = asyncio.create_task(self.upstream.run(), name="upstream")

    async def close(self) -> None:
        """The pods may live on, and the next agent serve them."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
        for key in tuple(self._pods):
            await self._stop(key, gone=False)
        await self._server.close()

    async def add(self, pod: Pod, doorway: Doorway) -> None:
        """Open its socket and ask for its config. Raises DoorError. One of the same key gets a new socket."""
        await self._stop(pod.key, gone=False)
        self._private.mkdir(mode=0o700, parents=True, exist_ok=True)
        inner = self._private / f"{next(self._numbers)}"
        inner.unlink(missing_ok=True)  # of an agent that was killed
        try:
            address = await self._server.listen(f"unix:{inner}")
        except ListenError as error:
            raise DoorError(str(error)) from error
        self._by_address[address] = pod
        door = Door(doorway, os.fspath(inner))
        try:
            await door.open()
        except BaseException:
            await self._forget(address)
            raise
        self._pods[pod.key] = pod, door, address
        self._copy.add(pod.key)

    async def remove(self, key: str) -> None:
        """Its socket is gone when this returns. Idempotent."""
        await self._stop(key, gone=True)
        self._copy.remove(key)

    def placed(self, key: str) -> bool:
        """Whether a proxy of this pod would be answered at once."""
        return key in self._copy.placements

    def streams(self) -> list[StreamStatus]:
        """Of the Envoys here."""
        return self._server.streams()

    async def _stop(self, key: str, *, gone: bool) -> None:
        _, door, address = self._pods.pop(key, (None, None, ""))
        if door is not None:
            await door.close(gone=gone)
            await self._forget(address)

    async def _forget(self, address: str) -> None:
        del self._by_address[address]
        await self._server.stop(address)
        Path(address.removeprefix("unix:")).unlink(missing_ok=True)

    def _moved(self, key: str) -> None:
        for waiting in self._waiting.pop(key, ()):
            waiting.set()
        for number in [number for number, of in self._streams.items() if of == key]:
            self._server.restart(number, "the pod's group has changed")

    # What the xDS server asks and tells (weft.xds.server.Observer)

    def join(self, stream_id: int, node: NodeInfo, peer: Peer) -> Awaitable[Hashable]:
        pod = self._by_address.get(peer.listener)
        if pod is None:
            raise Refused("the pod is gone")
        return self._group(stream_id, pod)

    async def _group(self, stream_id: int, pod: Pod) -> Hashable:
        while (group := self._copy.placements.get(pod.key)) is None:
            if not self.upstream.connected and (twin := self._twin(pod)) is not None:
                log.info("%s is served as %s, for the control plane is away", pod.name, twin.name)
                self._copy.place(pod.key, self._copy.placements[twin.key])
                continue
            placed = asyncio.Event()
            self._waiting[pod.key].append(placed)
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await placed.wait()
            except TimeoutError:
                pass
            finally:
                if placed in self._waiting.get(pod.key, ()):
                    self._waiting[pod.key].remove(placed)
        self._streams[stream_id] = pod.key
        self._copy.changed()
        return group

    def _twin(self, pod: Pod) -> Pod | None:
        if not pod.alike:
            return None
        twins = (other for other, _, _ in self._pods.values() if other.alike == pod.alike)
        return next((twin for twin in twins if twin.key in self._copy.placements), None)

    def leave(self, stream_id: int) -> None:
        self._streams.pop(stream_id, None)
        self._copy.changed()

    def acked(self, stream_id: int, type_url: str, nonce: str) -> None:
        self._copy.changed()

    def nacked(self, stream_id: int, type_url: str, nonce: str, message: str) -> None:
        self._copy.changed()

    def on_nack(self, resource: NackedResource) -> None:
        self._copy.refused(resource)
