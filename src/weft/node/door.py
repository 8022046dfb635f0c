"""The Unix socket of one workload, and the check of which process may connect: only the workload's Envoy, recognized by
its user and network namespace.

The kernel reports the user and process of each connection; an accepted connection is proxied to a server socket that
only root can reach. Two checks protect the socket: the modes of the socket and its directory, and the caller's network
namespace, because every pod has a process of the same user. Rule: a rejected caller gets no data, and the rejection is
logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
from pathlib import Path

import msgspec

log = logging.getLogger("weft.node.door")

LONGEST_PATH = 107  # bytes, the kernel's limit for a Unix socket's path
_DIRECTORY_MODE, _SOCKET_MODE = 0o750, 0o660
_FRESH = ".new"
_MOST_VISITORS = 16  # connections; an Envoy has one
# Streams of one workload on the server behind its socket. An Envoy has one stream for its config and one for each
# secret, and twice as many while a new Envoy replaces the old one. All pods of a machine share the agent's memory.
MOST_STREAMS = 16
_CHUNK = 64 * 1024
_CREDENTIALS = struct.Struct("=3i")


class DoorError(Exception):
    """A workload's socket cannot be created; the message has its path and the reason."""


class Doorway(msgspec.Struct, frozen=True, kw_only=True):
    """The path of a workload's socket, and which processes may connect: those of user `uid`, and with `network` (a
    file) only those in this network namespace. The socket's group is `gid`. The directory of the socket contains only
    sockets of this workload; `beside`: the file names of its other sockets. The pod mounts the directory, not the
    socket, so that it also sees a socket that is created anew at the same path. `seen`: the path inside the pod, if it
    is not `path`; the kernel's limit on the length of a socket's path applies to `seen` then."""

    path: Path
    uid: int
    gid: int
    network: Path | None = None  # the pod's network namespace, as a file; None: the caller's network is not checked
    beside: frozenset[str] = frozenset()  # names of other sockets that may be in the same directory
    seen: Path | None = None  # the path inside the pod, if not `path`; the kernel's limit applies to this one


class SocketPeer(msgspec.Struct, frozen=True):
    pid: int
    uid: int
    gid: int


class WorkloadSocket:
    def __init__(self, doorway: Doorway, inner: str) -> None:
        self._doorway = doorway
        self._inner = inner  # path of the socket of the server behind this one
        self._server: asyncio.Server | None = None
        self._made: os.stat_result | None = None
        self._visits: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Create the socket and accept connections. A socket that an earlier agent left at the path is replaced. Raises
        DoorError."""
        listening, self._made = bind(self._doorway)
        self._server = await asyncio.start_unix_server(self._enter, sock=listening)

    async def close(self, *, gone: bool = False) -> None:
        """Close all connections and delete the socket; Envoy keeps the config and secrets it has. The directory is
        deleted only if the workload has ended (`gone`): a running pod has mounted this directory, and would not see
        a socket in a new directory of the same name."""
        if self._server is not None:
            self._server.close()
        for visit in tuple(self._visits):
            visit.cancel()
        if self._visits:
            await asyncio.wait(tuple(self._visits))
        if self._made is not None:
            unbind(self._doorway, self._made, gone=gone)

    def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visitor = visitor_of(writer.get_extra_info("socket"))
        objection = self._objection(visitor)
        if objection:
            log.warning(
                "%s: rejected process %d of user %d: %s", self._doorway.path, visitor.pid, visitor.uid, objection
            )
            writer.close()
            return
        visit = asyncio.ensure_future(self._pass_on(reader, writer))
        self._visits.add(visit)
        visit.add_done_callback(self._visits.discard)

    def _objection(self, visitor: SocketPeer) -> str:
        doorway = self._doorway
        if visitor.uid != doorway.uid:
            return f"only user {doorway.uid} may connect"
        if len(self._visits) >= _MOST_VISITORS:
            return f"{_MOST_VISITORS} connections are open already"
        if doorway.network is None:
            return ""
        try:
            theirs, ours = Path(f"/proc/{visitor.pid}/ns/net").stat(), doorway.network.stat()
        except OSError as error:
            return f"its network namespace cannot be read: {error}"
        return "" if os.path.samestat(theirs, ours) else f"it is not in the network namespace {doorway.network.name}"

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_unix_connection(self._inner)
        except OSError as error:
            log.warning("%s: cannot connect to the server behind this socket: %s", self._doorway.path, error)
            writer.close()
            return
        ways = [asyncio.ensure_future(_pump(reader, inner_writer)), asyncio.ensure_future(_pump(inner_reader, writer))]
        try:
            # A gRPC connection is useless once one direction is closed.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for side in (writer, inner_writer):
                side.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while some := await reader.read(_CHUNK):
            writer.write(some)
            await writer.drain()


def bind(doorway: Doorway) -> tuple[socket.socket, os.stat_result]:
    """Create the listening socket of a doorway. Return the socket, and the stat result of its file, with which
    `unbind` recognizes the file. The file gets its modes before it appears at its path, so no other user can open
    it at any moment. Raises DoorError."""
    path, seen = doorway.path, doorway.seen or doorway.path
    if len(os.fsencode(seen)) > LONGEST_PATH:
        raise DoorError(f"{seen} is too long for a socket's path: at most {LONGEST_PATH} bytes")
    try:
        return _bind(doorway)
    except OSError as error:
        raise DoorError(f"cannot create the socket {path}: {error.strerror or error}") from error


def unbind(doorway: Doorway, created: os.stat_result, *, gone: bool) -> None:
    """Delete the socket file if it is still the one that `bind` created; `created` is the stat result that `bind`
    returned. A file that another agent has put there since is kept. With `gone`, also delete the socket's directory if
    it is empty then."""
    path = doorway.path
    with contextlib.suppress(OSError):
        # Another agent may have replaced the socket meanwhile; that agent's socket must not be deleted.
        if os.path.samestat(path.lstat(), created):
            path.unlink()
            if gone:
                path.parent.rmdir()


def visitor_of(connection: socket.socket) -> SocketPeer:
    """Return the process, user and group that connected, as the kernel reports them. The process ID is 0 if the
    caller's PID namespace is not visible to this process."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return SocketPeer(*_CREDENTIALS.unpack(credentials))


def _bind(doorway: Doorway) -> tuple[socket.socket, os.stat_result]:
    directory = doorway.path.parent
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.is_symlink() or directory.stat().st_uid != os.geteuid():
        raise DoorError(f"{directory} is a link or belongs to another user, who could replace the socket")
    fresh = f"{_FRESH}-{doorway.path.name}" if doorway.beside else _FRESH
    expected = {doorway.path.name, *doorway.beside, *(f"{_FRESH}-{each}" for each in doorway.beside), fresh}
    if others := {each.name for each in os.scandir(directory)} - expected:
        # The directory's mode is about to change and a pod is about to see it, which must not happen to a shared one
        # such as /run.
        raise DoorError(f"{directory} must contain only the workload's sockets, but it contains {min(others)}")
    os.chown(directory, -1, doorway.gid)
    directory.chmod(_DIRECTORY_MODE)
    (directory / fresh).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    opened = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # No process can connect before `listen`, so the mode is never wrong. The socket is bound through a file
        # descriptor of the directory, because kubelet's paths are longer than a socket address may be.
        listening.bind(f"/proc/self/fd/{opened}/{fresh}")
        os.chown(directory / fresh, -1, doorway.gid)
        (directory / fresh).chmod(_SOCKET_MODE)
        listening.listen(_MOST_VISITORS)
        (directory / fresh).rename(doorway.path)
        return listening, doorway.path.lstat()
    except BaseException:
        listening.close()
        raise
    finally:
        os.close(opened)
