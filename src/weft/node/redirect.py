"""Installs the traffic redirect for pods that may not do it themselves, in clusters that forbid NET_ADMIN in pods.

At the start of a pod's proxy, a program inside the pod connects to a socket in the pod's volume. The kernel reports
which process connected, and the agent installs the iptables rules in the network namespace of that process, and in no
other. Only then do the pod's next containers start. Nothing in the pod has any privilege. Rule: the process that
connects (the caller) chooses only which of its own traffic is redirected; the kernel decides in which network. The
first request of a pod is final: no process in the pod can change or remove the redirect.

The agent needs hostPID to see the pod's processes, SYS_ADMIN and SYS_PTRACE to enter their network, and NET_ADMIN and
NET_RAW to install the rules. It gets these capabilities only if redirects by the agent are enabled.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import select
import socket
from collections.abc import Coroutine, Iterator
from pathlib import Path

import msgspec

from weft.netns import iptables
from weft.netns.interception import Interception
from weft.netns.namespace import NetworkError, NetworkNamespace
from weft.node.door import Doorway, bind, unbind, visitor_of
from weft.node.pods import KubeletPod
from weft.node.redirect_call import LONGEST, RedirectRequest, RedirectResult

log = logging.getLogger("weft.node.redirect")

_REQUEST_TIMEOUT = 10.0  # seconds for a caller to send its request
_MOST_AT_ONCE = 4  # connections of one pod
_SO_PEERPIDFD = 77  # Linux 6.5
_POD_IN_CGROUP = re.compile(r"\bpod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})\b", re.IGNORECASE)


class Redirects:
    """The redirect socket of each pod; a `SocketServer`."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[asyncio.Server, Doorway, os.stat_result]] = {}
        self._visits: dict[str, set[asyncio.Task[None]]] = {}
        self.done = self.failed = 0

    async def add(self, pod: KubeletPod, doorway: Doorway) -> None:
        await self._shut(pod.uid, gone=False)
        listening, created = bind(doorway)
        visits = self._visits.setdefault(pod.uid, set())

        def enter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(visits) >= _MOST_AT_ONCE:
                writer.close()
                return
            visit = asyncio.ensure_future(self._visit(pod, doorway, reader, writer))
            visits.add(visit)
            visit.add_done_callback(visits.discard)

        server = await asyncio.start_unix_server(enter, sock=listening, limit=LONGEST)
        self._open[pod.uid] = server, doorway, created

    async def remove(self, uid: str) -> None:
        await self._shut(uid, gone=True)

    async def close(self) -> None:
        """Close the sockets but keep their directories; the next agent creates the sockets again."""
        for uid in tuple(self._open):
            await self._shut(uid, gone=False)

    async def _shut(self, uid: str, *, gone: bool) -> None:
        if uid not in self._open:
            return
        server, doorway, created = self._open.pop(uid)
        server.close()
        visits = self._visits.pop(uid, set())
        for visit in tuple(visits):
            visit.cancel()
        if visits:
            await asyncio.wait(tuple(visits))
        unbind(doorway, created, gone=gone)

    async def _visit(
        self, pod: KubeletPod, doorway: Doorway, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            answer = await self._answer(pod, doorway, reader, writer)
            if answer.error:
                self.failed += 1
                log.error("%s: cannot install the redirect: %s", pod, answer.error)
            else:
                self.done += 1
                log.info("%s: installed the redirect to its proxy", pod)
            with contextlib.suppress(OSError):
                writer.write(msgspec.json.encode(answer) + b"\n")
                await writer.drain()
        except Exception:
            log.exception("%s: cannot install the redirect, because of an unexpected error", pod)
        finally:
            writer.close()

    async def _answer(
        self, pod: KubeletPod, doorway: Doorway, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> RedirectResult:
        try:
            # Read the request even if the caller is then rejected: closing a socket with unread data would discard the
            # response.
            async with asyncio.timeout(_REQUEST_TIMEOUT):
                line = await reader.readline()
            with _network_of(writer.get_extra_info("socket"), pod, doorway) as network:
                wanted = Interception.from_arguments(msgspec.json.decode(line, type=RedirectRequest).arguments)
                await _uncancelled(asyncio.to_thread(iptables.apply_once, network, wanted))
        except NetworkError as error:
            return RedirectResult(error.problem.what, error.problem.hint)
        except _CallerRejected as error:
            return RedirectResult(str(error))
        except TimeoutError:
            return RedirectResult(f"no request arrived within {_REQUEST_TIMEOUT:.0f} s")
        except (ValueError, RecursionError) as error:
            return RedirectResult(f"invalid request for a redirect: {error}")
        except OSError as error:
            return RedirectResult(f"the rules cannot be installed: {error}")
        return RedirectResult()


async def _uncancelled(work: Coroutine[None, None, None]) -> None:
    """Wait for `work` to finish, even if this task is cancelled: a thread cannot be stopped, and the file descriptors
    that it uses must stay open until it ends."""
    thread = asyncio.ensure_future(work)
    try:
        await asyncio.shield(thread)
    finally:
        await asyncio.wait({thread})


class _CallerRejected(Exception):
    """The agent installs no redirect for the process that requested it; the message has the reason, such as that the
    process belongs to another pod."""


@contextlib.contextmanager
def _network_of(connection: socket.socket, pod: KubeletPod, doorway: Doorway) -> Iterator[NetworkNamespace]:
    """Yield the network namespace of the process at the other end of `connection`; it stays open inside the block.
    Raises _CallerRejected if that process is not of the user of `doorway`, or not in `pod`."""
    visitor = visitor_of(connection)
    if visitor.uid != doorway.uid:
        raise _CallerRejected(f"only user {doorway.uid} may request a redirect, not user {visitor.uid}")
    if visitor.pid <= 0:
        raise _CallerRejected("the agent cannot see the processes of pods: it needs hostPID to install redirects")
    process = _process_of(connection, visitor.pid)
    try:
        try:
            network = os.open(f"/proc/{visitor.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _CallerRejected(
                f"the network of the requesting process cannot be opened: {error.strerror}"
            ) from error
        try:
            _reject_other_networks(visitor.pid, network, pod)
            # The PID may have been reused before the namespace was opened, but not if the caller still runs now.
            if select.select([process], [], [], 0)[0]:
                raise _CallerRejected("the requesting process has ended")
            yield NetworkNamespace(f"/proc/self/fd/{network}")  # an absolute path is taken as it is
        finally:
            os.close(network)
    finally:
        os.close(process)


def _process_of(connection: socket.socket, pid: int) -> int:
    """Return a pidfd of the process that connected, never of a later process with the same PID."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise _CallerRejected("the requesting process has ended") from error
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        raise _CallerRejected("the requesting process has ended") from error


def _reject_other_networks(pid: int, network: int, pod: KubeletPod) -> None:
    """Raise _CallerRejected if the process `pid` is on the node's own network, or if its cgroup names a pod other
    than `pod`. `network` is a file descriptor of the process's network namespace."""
    theirs = os.fstat(network)
    for machines in ("/proc/1/ns/net", "/proc/self/ns/net"):
        with contextlib.suppress(OSError):
            if os.path.samestat(theirs, Path(machines).stat()):
                raise _CallerRejected(
                    "the requesting process is on the node's own network: the redirect would intercept the node's "
                    "traffic"
                )
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise _CallerRejected(f"the cgroup of the requesting process cannot be read: {error.strerror}") from error
    named = {uid.replace("_", "-").lower() for uid in _POD_IN_CGROUP.findall(groups)}
    if named and pod.uid.lower() not in named:
        raise _CallerRejected(f"the requesting process belongs to another pod, {min(named)}")
