"""Serves xDS config to the Envoys of a node. Each pod's proxy connects at a socket of its own and gets the config of
its group (the proxies that get the same config). The agent holds a copy of that config, which one stream to the
control plane keeps up to date.

Input: pods and their doorways. Rules: the socket decides which pod is connected, and the control plane decides the
pod's group; data sent by the client decides neither. A proxy that cannot be answered yet waits, and is never sent an
empty config. While the control plane cannot be reached, every proxy keeps what it has.
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

# The suffix that a controller adds to its own name for a pod: an ordinal, or five characters of Kubernetes' vowel-free
# alphabet for random names.
_OF_CONTROLLER = re.compile(r"(.+)-(?:[0-9]+|[bcdfghjklmnpqrstvwxz2456789]{5})")
_LOOK_SECONDS = 1.0  # between checks, while a proxy waits, whether the control plane is still connected
# How long to wait for the control plane's answer about resources that a proxy has and the copy lacks. Only time with a
# connected control plane counts. The answer takes milliseconds; a control plane that sends none may be too old, and the
# proxy must not wait for updates forever.
ANSWER_SECONDS = 5.0


class Relay:
    """The xDS server of a node's proxies; a `SocketServer`. `private` is a directory that only root can enter, for the
    server's own sockets. `line` returns the address and credentials of the control plane and is called before every
    connection attempt (`weft.xds.upstream`)."""

    def __init__(self, private: Path, node: str, line: Callable[[], Awaitable[Line]]) -> None:
        self._copy = Copy(moved=self._moved, replied=self._replied)
        self._server = XdsServer(self._copy.snapshots, self, most_streams=MOST_STREAMS)
        self.upstream = ControlPlaneStream(self._copy, node, line, streams=self._server.streams)
        self._pods: Entrances[KubeletPod] = Entrances(private, self._server)  # by UID
        self._streams: dict[int, str] = {}  # stream ID → the pod's UID
        self._waiting: dict[str, list[asyncio.Event]] = defaultdict(list)  # by the pod's UID
        self._unanswered: dict[str, list[asyncio.Event]] = defaultdict(list)  # by group
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._running = asyncio.create_task(self.upstream.run(), name="upstream")

    async def close(self) -> None:
        """Stop serving, but keep the sockets' directories: pods may keep running, and the next agent serves them."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
        for uid in self._pods.names():
            await self._pods.close(uid, gone=False)
        await self._server.close()

    async def add(self, pod: KubeletPod, doorway: Doorway) -> None:
        """Open the pod's socket and request its config from the control plane. A pod with the same UID gets a new
        socket. Raises DoorError."""
        await self._pods.close(pod.uid, gone=False)
        await self._pods.open(pod.uid, pod, doorway)
        self._copy.add(pod.uid)

    async def remove(self, uid: str) -> None:
        """Delete the pod's socket before returning. Idempotent."""
        await self._pods.close(uid, gone=True)
        self._copy.remove(uid)

    def placed(self, uid: str) -> bool:
        """Return whether the pod's group is known, so that its proxy would be answered at once."""
        return uid in self._copy.placements

    def lack(self, pod: KubeletPod) -> str:
        """Return why a proxy of this pod would get no config now: the agent has none for it, and no connection to the
        control plane. An empty string if the control plane is connected, if the pod's group is known, or if another pod
        of the same controller can lend its config (`_twin`)."""
        if self.upstream.connected or self.placed(pod.uid) or self._twin(pod) is not None:
            return ""
        why = self.upstream.trouble or "no response yet"
        return f"the node's agent has no configuration for this pod and no connection to the control plane: {why}"

    def streams(self) -> list[StreamStatus]:
        """Return the status of each stream of this node's Envoys."""
        return self._server.streams()

    def _replied(self, group: str) -> None:
        for waiting in self._unanswered.pop(group, ()):
            waiting.set()

    def _moved(self, uid: str) -> None:
        for waiting in self._waiting.pop(uid, ()):
            waiting.set()
        for number in [number for number, of in self._streams.items() if of == uid]:
            self._server.restart(number, "the pod's group has changed")

    # Callbacks of the xDS server (weft.xds.server.StreamObserver)

    def join(self, stream_id: int, node: NodeInfo, peer: Peer) -> Awaitable[Hashable]:
        pod = self._pods.owner(peer.listener)
        if pod is None:
            raise StreamRefused("the pod was removed")
        return self._group(stream_id, pod)

    async def _group(self, stream_id: int, pod: KubeletPod) -> Hashable:
        while (group := self._copy.placements.get(pod.uid)) is None:
            if not self.upstream.connected and (twin := self._twin(pod)) is not None:
                log.info("the control plane cannot be reached; %s gets the configuration of %s", pod, twin)
                self._copy.place(pod.uid, self._copy.placements[twin.uid])
                continue
            await _wait_for_event(self._waiting, pod.uid)
        self._streams[stream_id] = pod.uid
        self._copy.changed()
        return group

    def _twin(self, pod: KubeletPod) -> KubeletPod | None:
        """Return another pod of the same controller whose group is known; None if there is no such pod. While the
        control plane cannot be reached, `pod` gets the config of that other pod."""
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
        """Request the on-demand clusters `names` for the group of this stream's proxy; the control plane responds with
        an update of the group. `had`: the clusters and listeners that a reconnected proxy has and should keep.

        Return None if nothing of `had` has to be requested from the control plane, or if the proxy's group is not
        known. Otherwise return an awaitable that holds back updates to the proxy until the control plane has responded,
        or has been connected for ANSWER_SECONDS without a response."""
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
                log.warning(
                    "the control plane sent no on-demand clusters for group %s in time; using the current config",
                    group,
                )
                return
            began = loop.time()
            await _wait_for_event(self._unanswered, group)
            if self.upstream.connected:
                patience -= loop.time() - began

    def on_nack(self, resource: NackedResource) -> None:
        self._copy.refused(resource)


async def _wait_for_event(waiting: dict[str, list[asyncio.Event]], about: str) -> None:
    """Wait until there is news about `about`, the UID of a pod or the name of a group, but no longer than
    `_LOOK_SECONDS`. During the wait, `waiting[about]` contains an event, which the code that has the news sets."""
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
    """Return the namespace, service account and controller of a pod that a controller created. The pod's name shows
    that: it ends in a number, or in five characters of Kubernetes' random alphabet. `web-7d9f8c6b5-x2x7k` belongs
    to the ReplicaSet `web-7d9f8c6b5`. Return None for any other name: `db-admin` and `db-public` are not two pods
    of a controller `db`, and may have different policies."""
    match = _OF_CONTROLLER.fullmatch(pod.name)
    return (pod.namespace, pod.service_account, match[1]) if match else None


def own_line(own: OwnIdentity, target: str, server_name: str = "") -> Callable[[], Awaitable[Line]]:
    """Return the function that `Relay` takes as `line`. Each call returns the control plane's address with the agent's
    current certificate and token, or raises NoLine if the agent has none yet. `own`: the agent's own identity.
    `target`: the control plane's address. `server_name`: the name in the control plane's certificate, if it is not the
    host of `target`."""

    async def line() -> Line:
        credentials = own.held
        if credentials is None:
            raise NoLine("the agent has no certificate of its own yet")
        try:
            token = await own.token()
        except (OSError, ValueError) as error:
            raise NoLine(f"the agent has no token: {error}") from error
        return Line(
            target=target,
            roots=credentials.roots.decode(),
            chain=credentials.chain.decode(),
            key=credentials.key,
            token=token,
            server_name=server_name,
        )

    return line
