"""The pods of this node, as kubelet's CSI calls describe them, and the sockets in each pod's one volume: one for its
identity (SDS), one for its configuration (xDS) and, where enabled, one for its redirect.

Kubelet's calls arrive through `csi.py`. The sockets are protected by three things: kubelet mounts the volume into the
proxy's container of this pod only; the modes admit only the proxy's group; and the kernel reports the caller's user.
The caller's network namespace is not checked here, unlike on a machine without Kubernetes: the volume is created before
the pod has a network, and the agent does not see the processes of other pods.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from weft.model.identity import Identity
from weft.model.proxy import IDENTITY_MOUNT, PROXY_GID, PROXY_UID, REDIRECT_SOCKET, SDS_SOCKET, XDS_SOCKET
from weft.node.agent import Agent
from weft.node.door import DoorError, Doorway
from weft.node.identities import Bearer, Certified, TokenSource
from weft.node.keepsakes import Keepsake, Keepsakes
from weft.node.kubelet import Volume

log = logging.getLogger("weft.node.pods")

SOCKETS = frozenset({SDS_SOCKET, XDS_SOCKET, REDIRECT_SOCKET})
# Seconds for which a volume call of kubelet waits until the pod can be served. Kubelet cannot delete the pod meanwhile.
# After an error it retries with growing delays, but at least every two minutes.
PATIENCE = 15.0
_LOOK = 0.05  # seconds between checks whether the pod can be served


class KubeletPod(msgspec.Struct, frozen=True, order=True):
    """A pod as kubelet describes it. A name may be used again while the first pod of that name still exists; a UID is
    never used again."""

    namespace: str
    name: str
    uid: str
    service_account: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class SocketServer(Protocol):
    """A server with one socket in each pod's volume: the configuration (`relay.py`) or the redirect (`redirect.py`)."""

    async def add(self, pod: KubeletPod, doorway: Doorway) -> None:
        """Open the pod's socket. A socket of a pod with the same UID is replaced. Raises DoorError."""

    async def remove(self, uid: str) -> None:
        """Delete the pod's socket before returning. Idempotent."""


class VolumeRefused(Exception):
    """A CSI call to publish or unpublish a volume failed; kubelet shows the message in the pod's events."""


class NodePods:
    """All pods of the node. `servers` maps a socket's name to its server. `keepsakes` stores the state for the next
    agent; None: no state is kept. `lack` returns why a pod's proxy would get no config now, or an empty string.
    The caller must pass this object's method `certified` to the agent as its callback of that name."""

    def __init__(
        self,
        agent: Agent,
        servers: Mapping[str, SocketServer],
        keepsakes: Keepsakes | None,
        *,
        trust_domain: str,
        lack: Callable[[KubeletPod], str] = lambda _: "",
    ) -> None:
        self._agent, self._servers, self._keepsakes, self._trust_domain = agent, servers, keepsakes, trust_domain
        self._lack = lack
        self._served: dict[str, tuple[Volume, Keepsake]] = {}  # by UID
        self._opened: dict[str, set[str]] = {}  # by UID: names of its sockets that are open
        self._unnamed: set[str] = set()  # UIDs found at the start for which kubelet has not called yet
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        """Return the number of served pods. A pod that was recovered without kept state is not counted until
        kubelet's next call for its volume."""
        return len(self._served)

    async def publish(self, volume: Volume, pod: KubeletPod, token: str) -> None:
        """Open the pod's sockets, or store its newer token. Kubelet calls this first at the pod's start and then about
        every minute. Raises VolumeRefused, but only for the first call of a volume: after a later error kubelet would
        unmount the volume of a running pod."""
        async with self._turn(pod.uid):
            served, kept = self._served.get(pod.uid, (None, None))
            if served is not None and served.id != volume.id:
                raise VolumeRefused(f"pod {pod} already has a volume of this driver, {served.id}; it may have only one")
            if kept is not None:
                self._refresh(kept, token)
                await self._open_missing_sockets(kept)
            elif volume.path.exists():
                self._serve(volume, _keepsake(volume, pod, token))
                await self._open_missing_sockets(_keepsake(volume, pod, token))
            else:
                await self._publish_first(volume, _keepsake(volume, pod, token))

    async def _publish_first(self, volume: Volume, kept: Keepsake) -> None:
        pod = _pod_of(kept)
        if not kept.token:
            what = f"kubelet sent no token with the volume of pod {pod}"
            raise VolumeRefused(f"{what}: the CSIDriver needs tokenRequests")
        try:
            self._serve(volume, kept)
            for socket in self._missing_sockets(pod.uid):
                await self._open(pod, volume, socket)
            await self._wait_for_config(pod)
        except BaseException as error:
            await self._close(pod.uid)
            with contextlib.suppress(OSError):
                _remove(volume.path)
            if isinstance(error, (DoorError, OSError)):
                raise VolumeRefused(f"pod {pod}: {error}") from error
            raise

    async def _wait_for_config(self, pod: KubeletPod) -> None:
        """Wait until the pod's proxy can get its config; raise VolumeRefused after `PATIENCE` seconds. A pod without
        its volume shows the reason in its events, can be deleted, and starts once the volume is ready. With the
        volume, its proxy would start, get no config, and be restarted by kubelet with growing delays."""
        end = time.monotonic() + PATIENCE
        while lack := self._lack(pod):
            if time.monotonic() >= end:
                raise VolumeRefused(f"pod {pod} cannot start yet: {lack}")
            await asyncio.sleep(_LOOK)

    async def unpublish(self, volume: Volume) -> None:
        """Remove the volume's sockets and directory before returning. Idempotent. Raises VolumeRefused if kubelet must
        retry."""
        uid = volume.pod_uid
        async with self._turn(uid):
            served, kept = self._served.get(uid, (None, None))
            if served is None or served.id == volume.id:
                await self._close(uid)
            try:
                _remove(volume.path)
            except OSError as error:
                raise VolumeRefused(f"{volume.path} cannot be removed: {error.strerror or error}") from error
            if kept is not None:
                log.info("%s: removed its sockets", _pod_of(kept))

    async def recover(self, volumes: Iterable[Volume]) -> None:
        """Serve the pods of the previous agent again; `volumes` are the volumes that kubelet has recorded. A pod
        whose state the previous agent kept gets all its sockets and its certificate at once. Any other pod gets
        only the roots until kubelet's next call for its volume."""
        left = {} if self._keepsakes is None else {each.uid: each for each in self._keepsakes.all()}
        for volume in volumes:
            if not volume.path.exists():
                continue  # kubelet has recorded the volume and is about to publish it
            kept = left.get(volume.pod_uid)
            try:
                if kept is not None and (kept.volume_id, kept.path) == (volume.id, str(volume.path)):
                    self._serve(volume, left.pop(volume.pod_uid))
                    await self._open_missing_sockets(kept)
                else:
                    await self._agent.open(volume.pod_uid, doorway_in(volume.path, SDS_SOCKET))
                    self._unnamed.add(volume.pod_uid)
            except (DoorError, OSError) as error:
                log.error("cannot open the socket in %s; retrying at kubelet's next call: %s", volume.path, error)
        if self._keepsakes is not None:
            for uid in left:
                self._keepsakes.drop(uid)
        if self._served or self._unnamed:
            log.info(
                "serving %d pods of the previous agent; %d more after kubelet's next call for their volumes",
                len(self),
                len(self._unnamed),
            )

    def certified(self, workload: str, fresh: Certified) -> None:
        """Keep a pod's new certificate (`fresh`) for the next agent."""
        volume, kept = self._served.get(workload, (None, None))
        if volume is not None and kept is not None:
            self._keep(kept.with_certificate(fresh))

    def _serve(self, volume: Volume, kept: Keepsake) -> None:
        """Record the pod of `volume` as served, with the state that is kept for the next agent (`kept`). Its sockets
        are opened afterwards, one by one."""
        self._served[kept.uid] = volume, kept
        self._opened[kept.uid] = set()
        self._unnamed.discard(kept.uid)
        self._keep(kept)
        log.info("%s: serving its sockets in %s", _pod_of(kept), volume.path)

    async def _open(self, pod: KubeletPod, volume: Volume, socket: str) -> None:
        doorway = doorway_in(volume.path, socket)
        if socket == SDS_SOCKET:
            _, kept = self._served[pod.uid]
            identity = Identity(self._trust_domain, pod.namespace, pod.service_account)
            bearer = Bearer(name=str(pod), identity=identity, token=self._token(pod.uid), uid=pod.uid)
            await self._agent.add(bearer, doorway, kept.certificate(identity, time.time()))
        else:
            await self._servers[socket].add(pod, doorway)
        self._opened[pod.uid].add(socket)

    async def _open_missing_sockets(self, kept: Keepsake) -> None:
        """Open the sockets that the pod of `kept` does not have yet. If one socket fails, the running pod keeps its
        other sockets."""
        pod, (volume, _) = _pod_of(kept), self._served[kept.uid]
        for socket in self._missing_sockets(pod.uid):
            try:
                await self._open(pod, volume, socket)
            except (DoorError, OSError) as error:
                log.error(
                    "%s: cannot open the socket `%s` in the pod's volume; retrying in a minute: %s", pod, socket, error
                )
            except Exception:
                log.exception(
                    "%s: cannot open the socket `%s` in the pod's volume, because of an unexpected error", pod, socket
                )

    def _missing_sockets(self, uid: str) -> list[str]:
        return [socket for socket in (SDS_SOCKET, *self._servers) if socket not in self._opened[uid]]

    def _token(self, uid: str) -> TokenSource:
        async def newest() -> str:
            _, kept = self._served.get(uid, (None, None))
            if kept is None or not kept.token:
                raise ValueError(
                    "kubelet has sent no token for this pod since the agent started; it sends one every minute or two"
                )
            return kept.token

        return newest

    async def _close(self, uid: str) -> None:
        for pods_by_uid in (self._served, self._opened):
            pods_by_uid.pop(uid, None)
        self._unnamed.discard(uid)
        for server in self._servers.values():
            await server.remove(uid)
        await self._agent.remove(uid)
        if self._keepsakes is not None:
            self._keepsakes.drop(uid)

    def _refresh(self, kept: Keepsake, token: str) -> None:
        if token and token != kept.token:
            self._keep(msgspec.structs.replace(kept, token=token))
            self._agent.hurry(kept.uid)

    def _keep(self, kept: Keepsake) -> None:
        volume, _ = self._served[kept.uid]
        self._served[kept.uid] = volume, kept
        if self._keepsakes is not None:
            self._keepsakes.keep(kept)

    @contextlib.asynccontextmanager
    async def _turn(self, uid: str) -> AsyncIterator[None]:
        """Wait until no other call for this pod is in progress: inside the block, this is the pod's only call."""
        lock, waiting = self._turns.get(uid, (asyncio.Lock(), 0))
        self._turns[uid] = lock, waiting + 1
        try:
            async with lock:
                yield
        finally:
            _, waiting = self._turns[uid]
            self._turns[uid] = lock, waiting - 1
            if waiting == 1:
                del self._turns[uid]


def doorway_in(volume: Path, socket: str) -> Doorway:
    return Doorway(
        path=volume / socket,
        uid=PROXY_UID,
        gid=PROXY_GID,
        beside=SOCKETS - {socket},
        seen=Path(IDENTITY_MOUNT, socket),
    )


def _keepsake(volume: Volume, pod: KubeletPod, token: str) -> Keepsake:
    return Keepsake(
        volume_id=volume.id,
        path=str(volume.path),
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        service_account=pod.service_account,
        token=token,
    )


def _pod_of(kept: Keepsake) -> KubeletPod:
    return KubeletPod(kept.namespace, kept.pod, kept.uid, kept.service_account)


def _remove(path: Path) -> None:
    """Delete the agent's sockets in the volume, then the directory."""
    with contextlib.suppress(FileNotFoundError):
        for name in (*SOCKETS, *(f".new-{each}" for each in SOCKETS)):
            (path / name).unlink(missing_ok=True)
        path.rmdir()
