"""One workload's socket, and who may come in: its Envoy, known to the kernel by user and network namespace.

A connection comes in, the kernel says who made it, and it is passed on, byte by byte, to a server behind it that only
root can reach. Two locks: the modes of the socket and its directory; and, as every pod has a process of the same user,
the question which network the caller lives in. Rule: who may not come in learns nothing, and is logged.
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

LONGEST_PATH = 107  # bytes, the kernel's limit
_DIRECTORY_MODE, _SOCKET_MODE = 0o750, 0o660
_FRESH = ".new"
_MOST_VISITORS = 16  # connections; an Envoy has one
# Behind one door, for the servers there. An Envoy has one for its config and one for each secret, and twice that while
# another takes its place. All pods of a machine share the agent's memory.
MOST_STREAMS = 16
_CHUNK = 64 * 1024
_CREDENTIALS = struct.Struct("=3i")


class DoorError(Exception):
    """A socket cannot be made; says which and why."""


class Doorway(msgspec.Struct, frozen=True, kw_only=True):
    """Where a socket is, and for whom. Its directory is the socket's alone: it is what a pod gets to see, so that a
    socket made anew at the same path is seen, too."""

    path: Path
    uid: int
    gid: int
    network: Path | None = None  # the pod's network namespace, as a file; None: whoever has the user may come in
    beside: frozenset[str] = frozenset()  # other sockets that may be in the same directory
    seen: Path | None = None  # where its proxy finds it, if not at `path`: that is what must not be too long


class SocketPeer(msgspec.Struct, frozen=True):
    pid: int
    uid: int
    gid: int


class WorkloadSocket:
    def __init__(self, doorway: Doorway, inner: str) -> None:
        self._doorway = doorway
        self._inner = inner  # the path of the server's own socket
        self._server: asyncio.Server | None = None
        self._made: os.stat_result | None = None
        self._visits: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Raises DoorError. What an agent before us left at the path is replaced."""
        listening, self._made = bind(self._doorway)
        self._server = await asyncio.start_unix_server(self._enter, sock=listening)

    async def close(self, *, gone: bool = False) -> None:
        """Streams end; what came through them stays where it went. The directory goes only with its workload (`gone`):
        a pod that lives on sees this very directory, and would never see a socket in another of the same name."""
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
                "%s: refused process %d of user %d: %s", self._doorway.path, visitor.pid, visitor.uid, objection
            )
            writer.close()
            return
        visit = asyncio.ensure_future(self._pass_on(reader, writer))
        self._visits.add(visit)
        visit.add_done_callback(self._visits.discard)

    def _objection(self, visitor: SocketPeer) -> str:
        doorway = self._doorway
        if visitor.uid != doorway.uid:
            return f"only user {doorway.uid} may come in"
        if len(self._visits) >= _MOST_VISITORS:
            return f"{_MOST_VISITORS} connections are open already"
        if doorway.network is None:
            return ""
        try:
            theirs, ours = Path(f"/proc/{visitor.pid}/ns/net").stat(), doorway.network.stat()
        except OSError as error:
            return f"where it lives cannot be seen: {error}"
        return "" if os.path.samestat(theirs, ours) else f"it lives in another network than {doorway.network.name}"

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_unix_connection(self._inner)
        except OSError as error:
            log.warning("%s: the server behind it is gone: %s", self._doorway.path, error)
            writer.close()
            return
        ways = [asyncio.ensure_future(_pump(reader, inner_writer)), asyncio.ensure_future(_pump(inner_reader, writer))]
        try:
            # Neither side of a gRPC connection is of use without the other.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for each in (writer, inner_writer):
                each.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while some := await reader.read(_CHUNK):
            writer.write(some)
            await writer.drain()


def bind(doorway: Doorway) -> tuple[socket.socket, os.stat_result]:
    """A socket that listens there, and what was made, by which it is known later. It appears at its path with its modes
    set: at no moment can anybody else open it. Raises DoorError."""
    path, seen = doorway.path, doorway.seen or doorway.path
    if len(os.fsencode(seen)) > LONGEST_PATH:
        raise DoorError(f"{seen} is too long for a socket: {LONGEST_PATH} bytes are the most")
    try:
        return _bind(doorway)
    except OSError as error:
        raise DoorError(f"cannot make the socket {path}: {error.strerror or error}") from error


def unbind(doorway: Doorway, made: os.stat_result, *, gone: bool) -> None:
    """Remove the socket; with `gone` its directory, too, once it is empty."""
    path = doorway.path
    with contextlib.suppress(OSError):
        # Another agent may have taken over meanwhile: its socket is not ours to remove.
        if os.path.samestat(path.lstat(), made):
            path.unlink()
            if gone:
                path.parent.rmdir()


def visitor_of(connection: socket.socket) -> SocketPeer:
    """Who called, as the kernel says. Without a view of the caller's processes, the number of its process is 0."""
    said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return SocketPeer(*_CREDENTIALS.unpack(said))


def _bind(doorway: Doorway) -> tuple[socket.socket, os.stat_result]:
    directory = doorway.path.parent
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.is_symlink() or directory.stat().st_uid != os.geteuid():
        raise DoorError(f"{directory} is not ours: somebody else could put another socket there")
    fresh = f"{_FRESH}-{doorway.path.name}" if doorway.beside else _FRESH
    known = {doorway.path.name, *doorway.beside, *(f"{_FRESH}-{each}" for each in doorway.beside), fresh}
    if others := {each.name for each in os.scandir(directory)} - known:
        # Its mode is about to change, and a pod to see it: that must not happen to /run.
        raise DoorError(f"{directory} is not the socket's alone: it holds {min(others)}")
    os.chown(directory, -1, doorway.gid)
    directory.chmod(_DIRECTORY_MODE)
    (directory / fresh).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    opened = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # Before it listens nobody can connect, so there is no moment at which the mode is wrong. The path goes through
        # our handle of the directory, as kubelet's own paths are longer than a socket's address may be.
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
