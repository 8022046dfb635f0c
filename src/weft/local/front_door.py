"""Publishes ports of a mesh's gateways on this machine: runs one small Envoy in the machine's own network namespace
while at least one port is published. No route, firewall rule or link of the machine is changed.

Input: the ports that Workloads publish, and the sockets of the pods that serve them. A port that cannot be published
becomes a problem at the line of the Workload that declares it, and does not affect the other ports. A port that another
program uses is tried again until it is free.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

import msgspec

from weft.base.problem import Problem, Severity, Where
from weft.envoy import front_door
from weft.envoy.front_door import HostPort
from weft.local.forwarding_envoy import EnvoyPlace, ForwardingEnvoy, own_directory, replace

log = logging.getLogger("weft.local.front_door")

RETRY = 1.0  # seconds between two checks whether a used port has become free
_DIRECTORY = "front-door"


class Publication(msgspec.Struct, frozen=True):
    """A port of the machine (`address`, `host_port`) that a Workload publishes, and the sockets of the pods that serve
    it. `owner`: the Workload's name in messages. `where`: the place of the port in the files."""

    owner: str  # the Workload, as shown in messages
    where: Where
    address: str
    host_port: int
    sockets: tuple[str, ...] = ()  # paths relative to the directory of the gateways' sockets

    @property
    def place(self) -> tuple[str, int]:
        return self.address, self.host_port

    def meets(self, other: Publication) -> bool:
        """Return whether this publication and `other` conflict: they have the same port and overlapping addresses, so
        the kernel would let only one of them listen."""
        if self.host_port != other.host_port:
            return False
        every = ip_address(self.address).is_unspecified or ip_address(other.address).is_unspecified
        return every or ip_address(self.address) == ip_address(other.address)


class FrontDoor:
    def __init__(self, binary: Path, run_directory: Path, doors: Path) -> None:
        """`binary`: the Envoy executable. `run_directory`: the mesh's run directory, for the Envoy's own files.
        `doors`: the directory with one subdirectory per gateway pod, which contains the pod's sockets."""
        self._binary, self._doors = binary, doors
        self._directory = run_directory / _DIRECTORY
        self._wanted: tuple[Publication, ...] = ()
        self._problems: tuple[Problem, ...] = ()
        self._open: dict[tuple[str, int], HostPort] = {}
        self._woken, self._settled = asyncio.Event(), asyncio.Event()
        self._envoy: ForwardingEnvoy | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._unwritten = ""  # why the Envoy's files could not be written
        self._closed = False

    @property
    def pid(self) -> int:
        return self._envoy.pid if self._envoy is not None else 0

    @property
    def _trouble(self) -> str:
        return self._unwritten or (self._envoy.trouble if self._envoy is not None else "")

    def want(self, publications: Sequence[Publication]) -> None:
        wanted = tuple(sorted(publications, key=lambda each: (each.owner, each.place)))
        if self._closed or wanted == self._wanted:
            return
        self._wanted = wanted
        self._settled.clear()
        self._woken.set()
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep(), name="front door")

    async def settled(self) -> None:
        """Return when the publications last passed to `want` are in the files that Envoy reads."""
        if self._keeping is not None:
            await self._settled.wait()

    def published(self, owner: str) -> tuple[str, ...]:
        """Return the addresses, as ADDRESS:PORT, at which the Workload `owner` can be reached now."""
        mine = (each for each in self._wanted if each.owner == owner and each.place in self._open and not self._trouble)
        return tuple(_text(each) for each in mine)

    def problems(self) -> tuple[Problem, ...]:
        if not self._trouble:
            return self._problems
        return (
            *self._problems,
            *(
                Problem(each.where, f"port {each.host_port} is not published: {self._trouble}", "", Severity.ERROR)
                for each in self._wanted
                if each.place in self._open
            ),
        )

    async def close(self) -> None:
        """End the Envoy: no published port accepts connections after this returns. Idempotent."""
        self._closed = True
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        if self._envoy is not None:
            await self._envoy.close()
        self._settled.set()

    # Published ports

    async def _keep(self) -> None:
        while True:
            try:
                async with asyncio.timeout(RETRY if self._problems else None):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()
            try:
                await self._apply()
                self._unwritten = ""
            except OSError as error:
                self._unwritten = f"{error.filename}: {error.strerror}"
                log.error("cannot publish ports: %s", self._trouble)
            self._settled.set()

    async def _apply(self) -> None:
        chosen, problems = _without_conflicts(self._wanted)
        doors: dict[tuple[str, int], HostPort] = {}
        for publication in chosen:
            why = "" if publication.place in self._open else _why_not(publication)
            if why:
                problems.append(Problem(publication.where, why, _hint(publication), Severity.ERROR))
            else:
                doors[publication.place] = HostPort(publication.address, publication.host_port, publication.sockets)
        self._problems = tuple(problems)
        if doors == self._open and (doors or self._envoy is None):
            return
        self._write(tuple(doors.values()))
        self._open = doors
        if doors and self._envoy is None:
            self._envoy = ForwardingEnvoy(self._binary, self._directory / front_door.BOOTSTRAP, self._plan())
            self._envoy.start()
        elif not doors and self._envoy is not None:
            envoy, self._envoy = self._envoy, None
            await envoy.close()

    def _plan(self) -> EnvoyPlace:
        return EnvoyPlace(
            what="the Envoy that publishes ports",
            working_directory=self._doors,
            visible=(self._directory, self._doors),
            capabilities=("net_bind_service",),  # for ports below 1024, such as 80
        )

    def _write(self, doors: tuple[HostPort, ...]) -> None:
        """Write the Envoy's bootstrap and its config files for the published ports `doors`."""
        own_directory(self._directory)
        texts = {front_door.BOOTSTRAP: front_door.bootstrap(str(self._directory))}
        for name, text in {**texts, **front_door.files(str(self._directory), doors)}.items():
            replace(self._directory / name, text)


def _without_conflicts(wanted: Sequence[Publication]) -> tuple[list[Publication], list[Problem]]:
    """Return (served, problems): those publications in `wanted` that can be served, and a problem for each other
    publication. If two publications conflict, the one that comes first in `wanted` is served."""
    chosen: list[Publication] = []
    problems: list[Problem] = []
    for publication in wanted:
        other = next((other for other in chosen if other.meets(publication)), None)
        if other is None:
            chosen.append(publication)
            continue
        what = f"port {publication.host_port} of {publication.address} is already published by {other.owner}"
        problems.append(Problem(publication.where, what, "use another hostPort", Severity.ERROR))
    return chosen, problems


def _why_not(publication: Publication) -> str:
    """Return why this machine's kernel does not allow listening at the address and port of `publication`, or "" if it
    does."""
    address, port = publication.place
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with contextlib.closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return f"port {port} of {address} is not published: another program on this machine uses it"
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return f"port {port} is not published: this machine has no address {address}"
        return f"port {port} of {address} is not published: {error.strerror}"
    return ""


def _text(publication: Publication) -> str:
    address, port = publication.place
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _hint(publication: Publication) -> str:
    return f"use another hostPort, or find the program that uses this one: ss -ltnp sport = :{publication.host_port}"
