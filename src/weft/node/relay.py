"""Config to Envoys: each pod's proxy asks at a socket of its own and gets its group's config from the agent's copy,
which one stream to the control plane keeps filled.

Pods come in with a doorway each; Envoys come in through it. Rules: which pod asks is decided by the socket, and of
which group it is by the control plane, never by what a client says; who cannot be answered yet waits, and is never
told that there is nothing; a control plane that is away takes nothing from anybody.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable
from pathlib import Path

from weft.node.door import MOST_STREAMS, Doorway
from weft.node.entrances import Entrances
from weft.node.own import OwnIdentity
from weft.node.pods import KubeletPod
from weft.xds.clients import Peer, StreamStatus
from weft.xds.copy import Copy
from weft.xds.request import NodeInfo, StreamRefused
from weft.xds.server import XdsServer
from weft.xds.stream import NackedResource
from weft.xds.upstream import ControlPlaneStream, Line, NoLine

log = logging.getLogger("weft.node.relay")

# What controllers add to their own name: a number, or five of the letters that make no words.
_OF_CONTROLLER = re.compile(r"(.+)-(?:[0-9]+|[bcdfghjklmnpqrstvwxz2456789]{5})")
_LOOK_SECONDS = 1.0  # between looks whether the control plane has gone while a proxy waits
# For an answer about what a proxy has and the copy has not, while there is a control plane. It takes milliseconds; one
# that does not give it may be too old to, and a proxy must not be kept from news for good.
ANSWER_SECONDS = 5.0


class Relay:
    """`private` is a directory that only root can enter: the servers behind the doors listen there. `line` says how to
    call the control plane, and is asked before every call (`weft.xds.upstream`)."""

    def __init__(self, private: Path, node: str, line: Callable[[], Awaitable[Line]]) -> None:
        self._copy = Copy(moved=self._moved, heard=self._heard)
        self._server = XdsServer(self._copy.snapshots, self, most_streams=MOST_STREAMS)
        self.upstream = ControlPlaneStream(self._copy, node, line, streams=self._server.streams)
        self._pods: Entrances[KubeletPod] = Entrances(private, self._server)  # by UID
        self._streams: dict[int, str] = {}  # number → the pod's UID
        self._waiting: dict[str, list[asyncio.Event]] = defaultdict(list)  # by the pod's UID
        self._asking: dict[str, list[asyncio.Event]] = defaultdict(list)  # by group
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._running = asyncio.create_task(self.upstream.run(), name="upstream")

    async def close(self) -> None:
        """The pods may live on, and the next agent serve them."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
        for uid in self._pods.names():
            await self._pods.close(uid, gone=False)
        await self._server.close()

    async def add(self, pod: KubeletPod, doorway: Doorway) -> None:
        """Open its socket and ask for its config. Raises DoorError. One of the same UID gets a new socket."""
        await self._pods.close(pod.uid, gone=False)
        await self._pods.open(pod.uid, pod, doorway)
        self._copy.add(pod.uid)

    async def remove(self, uid: str) -> None:
        """Its socket is gone when this returns. Idempotent."""
        await self._pods.close(uid, gone=True)
        self._copy.remove(uid)

    def placed(self, uid: str) -> bool:
        """Whether a proxy of this pod would be answered at once."""
        return uid in self._copy.placements

    def lack(self, pod: KubeletPod) -> str:
        """Why a proxy of this pod would not be answered; nothing if it is, or there is somebody to ask."""
        if self.upstream.connected or self.placed(pod.uid) or self._twin(pod) is not None:
            return ""
        why = self.upstream.trouble or "it has not answered yet"
        return f"the node's agent has no configuration for it, and no stream to the control plane: {why}"

    def streams(self) -> list[StreamStatus]:
        """Of the Envoys here."""
        return self._server.streams()

    def _heard(self, group: str) -> None:
        for waiting in self._asking.pop(group, ()):
            waiting.set()

    def _moved(self, uid: str) -> None:
        for waiting in self._waiting.pop(uid, ()):
            waiting.set()
        for number in [number for number, of in self._streams.items() if of == uid]:
            self._server.restart(number, "the pod's group has changed")

    # What the xDS server asks and tells (weft.xds.server.StreamObserver)

    def join(self, stream_id: int, node: NodeInfo, peer: Peer) -> Awaitable[Hashable]:
        pod = self._pods.owner(peer.listener)
        if pod is None:
            raise StreamRefused("the pod is gone")
        return self._group(stream_id, pod)

    async def _group(self, stream_id: int, pod: KubeletPod) -> Hashable:
        while (group := self._copy.placements.get(pod.uid)) is None:
            if not self.upstream.connected and (twin := self._twin(pod)) is not None:
                log.info("%s is served as %s, for the control plane is away", pod, twin)
                self._copy.place(pod.uid, self._copy.placements[twin.uid])
                continue
            await _news(self._waiting, pod.uid)
        self._streams[stream_id] = pod.uid
        self._copy.changed()
        return group

    def _twin(self, pod: KubeletPod) -> KubeletPod | None:
        """Another of the same making: what it is served fits, until the control plane says so itself."""
        making = _making(pod)
        twins = (other for other in self._pods.owners() if making and _making(other) == making)
        return next((twin for twin in twins if twin.uid in self._copy.placements), None)

    def leave(self, stream_id: int) -> None:
        self._streams.pop(stream_id, None)
        self._copy.changed()

    def acked(self, stream_id: int, type_url: str, nonce: str) -> None:
        self._copy.changed()

    def nacked(self, stream_id: int, type_url: str, nonce: str, message: str) -> None:
        self._copy.changed()

    def wanted(self, stream_id: int, names: tuple[str, ...], had: tuple[str, ...]) -> Awaitable[None] | None:
        """The control plane is asked, and answers by an update of the group. Who has had it is to keep it: while this
        agent knows less than its proxy, that is told nothing."""
        group = self._copy.placements.get(self._streams.get(stream_id, ""))
        if group is None:
            return None
        self._copy.want(group, names)
        number = self._copy.had(group, had)
        return self._answered(group, number) if number else None

    async def _answered(self, group: str, number: int) -> None:
        loop = asyncio.get_running_loop()
        patience = ANSWER_SECONDS
        while not self._copy.is_answered(group, number):
            if patience <= 0:
                log.warning("the control plane has not said what of group %s is called; it is served as it is", group)
                return
            began = loop.time()
            await _news(self._asking, group)
            if self.upstream.connected:
                patience -= loop.time() - began

    def on_nack(self, resource: NackedResource) -> None:
        self._copy.refused(resource)


async def _news(waiting: dict[str, list[asyncio.Event]], about: str) -> None:
    """Or it is time for another look."""
    news = asyncio.Event()
    waiting[about].append(news)
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            await news.wait()
    except TimeoutError:
        pass
    finally:
        if news in waiting.get(about, ()):
            waiting[about].remove(news)
        if not waiting.get(about):
            waiting.pop(about, None)


def _making(pod: KubeletPod) -> tuple[str, str, str] | None:
    """Controllers name pods after themselves: `web-7d9f8c6b5-x2x7k` is of the ReplicaSet `web-7d9f8c6b5`. What a person
    has named says nothing: `db-admin` is no `db-public`, and has other policies."""
    found = _OF_CONTROLLER.fullmatch(pod.name)
    return (pod.namespace, pod.service_account, found[1]) if found else None


def own_line(own: OwnIdentity, target: str, server_name: str = "") -> Callable[[], Awaitable[Line]]:
    """Call with the agent's own certificate and token, as they are at the time."""

    async def line() -> Line:
        held = own.held
        if held is None:
            raise NoLine("the agent has no certificate of its own yet")
        try:
            token = await own.token()
        except (OSError, ValueError) as error:
            raise NoLine(f"the agent has no token: {error}") from error
        return Line(
            target=target,
            roots=held.roots.decode(),
            chain=held.chain.decode(),
            key=held.key,
            token=token,
            server_name=server_name,
        )

    return line
