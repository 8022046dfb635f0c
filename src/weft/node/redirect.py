"""The redirect of a pod that may not set it up itself: for clusters that forbid NET_ADMIN in pods.

What kubelet runs at the start of the pod's proxy calls on a socket in the pod's volume, from inside the pod's network;
the kernel says which process that is, and in that process's network, and no other, the rules are put in place. Only
then do the pod's next containers start. Nothing in the pod has any privilege. Rule: what the caller says is only which
of its own traffic is meant; where that is, the kernel says. What was asked for first holds: nobody in the pod lifts it.

For this the agent must see the pod's processes (hostPID), and have SYS_ADMIN and SYS_PTRACE to enter, NET_ADMIN and
NET_RAW to set the rules: capabilities that it does not have unless this was chosen.
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

_REQUEST_TIMEOUT = 10.0  # seconds
_MOST_AT_ONCE = 4  # of one pod
_SO_PEERPIDFD = 77  # Linux 6.5
_POD_IN_CGROUP = re.compile(r"\bpod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})\b", re.IGNORECASE)


class Redirects:
    """A `SocketServer` of pods."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[asyncio.Server, Doorway, os.stat_result]] = {}
        self._visits: dict[str, set[asyncio.Task[None]]] = {}
        self.done = self.failed = 0

    async def add(self, pod: KubeletPod, doorway: Doorway) -> None:
        await self._shut(pod.uid, gone=False)
        listening, made = bind(doorway)
        visits = self._visits.setdefault(pod.uid, set())

        def enter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(visits) >= _MOST_AT_ONCE:
                writer.close()
                return
            visit = asyncio.ensure_future(self._visit(pod, doorway, reader, writer))
            visits.add(visit)
            visit.add_done_callback(visits.discard)

        server = await asyncio.start_unix_server(enter, sock=listening, limit=LONGEST)
        self._open[pod.uid] = server, doorway, made

    async def remove(self, uid: str) -> None:
        await self._shut(uid, gone=True)

    async def close(self) -> None:
        """The next agent makes the sockets anew."""
        for uid in tuple(self._open):
            await self._shut(uid, gone=False)

    async def _shut(self, uid: str, *, gone: bool) -> None:
        if uid not in self._open:
            return
        server, doorway, made = self._open.pop(uid)
        server.close()
        visits = self._visits.pop(uid, set())
        for visit in tuple(visits):
            visit.cancel()
        if visits:
            await asyncio.wait(tuple(visits))
        unbind(doorway, made, gone=gone)

    async def _visit(
        self, pod: KubeletPod, doorway: Doorway, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            answer = await self._answer(pod, doorway, reader, writer)
            if answer.error:
                self.failed += 1
                log.error("%s: no redirect: %s", pod, answer.error)
            else:
                self.done += 1
                log.info("%s: its traffic is redirected to its proxy", pod)
            with contextlib.suppress(OSError):
                writer.write(msgspec.json.encode(answer) + b"\n")
                await writer.drain()
        except Exception:
            log.exception("%s: no redirect, for a reason nobody thought of", pod)
        finally:
            writer.close()

    async def _answer(
        self, pod: KubeletPod, doorway: Doorway, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> RedirectResult:
        try:
            # Also of one who is not helped: what is closed with words unread takes the answer along.
            async with asyncio.timeout(_REQUEST_TIMEOUT):
                line = await reader.readline()
            with _network_of(writer.get_extra_info("socket"), pod, doorway) as network:
                wanted = Interception.from_arguments(msgspec.json.decode(line, type=RedirectRequest).arguments)
                await _to_its_end(asyncio.to_thread(iptables.apply_once, network, wanted))
        except NetworkError as error:
            return RedirectResult(error.problem.what, error.problem.hint)
        except _Unwelcome as error:
            return RedirectResult(str(error))
        except TimeoutError:
            return RedirectResult(f"nothing was asked for within {_REQUEST_TIMEOUT:.0f} s")
        except (ValueError, RecursionError) as error:
            return RedirectResult(f"this is not how a redirect is asked for: {error}")
        except OSError as error:
            return RedirectResult(f"the rules cannot be put in place: {error}")
        return RedirectResult()


async def _to_its_end(work: Coroutine[None, None, None]) -> None:
    """Also if nobody wants to wait any more: a thread cannot be stopped, and what it uses must stay open so long."""
    thread = asyncio.ensure_future(work)
    try:
        await asyncio.shield(thread)
    finally:
        await asyncio.wait({thread})


class _Unwelcome(Exception):
    """The caller cannot be helped; says why."""


@contextlib.contextmanager
def _network_of(connection: socket.socket, pod: KubeletPod, doorway: Doorway) -> Iterator[NetworkNamespace]:
    """The caller's network, held open. Raises _Unwelcome."""
    visitor = visitor_of(connection)
    if visitor.uid != doorway.uid:
        raise _Unwelcome(f"only user {doorway.uid} may ask, not {visitor.uid}")
    if visitor.pid <= 0:
        raise _Unwelcome("the agent does not see the processes of pods: it needs hostPID to set up redirects")
    process = _process_of(connection, visitor.pid)
    try:
        try:
            network = os.open(f"/proc/{visitor.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _Unwelcome(f"the caller's network cannot be opened: {error.strerror}") from error
        try:
            _refuse_strangers(visitor.pid, network, pod)
            # Its number may have become another's before we looked, but not if it still runs now.
            if select.select([process], [], [], 0)[0]:
                raise _Unwelcome("the caller has ended")
            yield NetworkNamespace(f"/proc/self/fd/{network}")  # an absolute path stands for itself
        finally:
            os.close(network)
    finally:
        os.close(process)


def _process_of(connection: socket.socket, pid: int) -> int:
    """A handle of the process that called, and not of one that got its number later."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise _Unwelcome("the caller has ended") from error
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        raise _Unwelcome("the caller has ended") from error


def _refuse_strangers(pid: int, network: int, pod: KubeletPod) -> None:
    """The node's own network is nobody's pod; and where the kernel's groups name a pod, it must be this one."""
    theirs = os.fstat(network)
    for machines in ("/proc/1/ns/net", "/proc/self/ns/net"):
        with contextlib.suppress(OSError):
            if os.path.samestat(theirs, Path(machines).stat()):
                raise _Unwelcome("the caller is on the node's own network: all of its traffic would be intercepted")
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise _Unwelcome(f"the caller cannot be looked at: {error.strerror}") from error
    named = {found.replace("_", "-").lower() for found in _POD_IN_CGROUP.findall(groups)}
    if named and pod.uid.lower() not in named:
        raise _Unwelcome(f"the caller is a process of another pod, {min(named)}")
