"""The workload sockets of one xDS server: each client connects at a socket of its own, and the socket identifies the
client.

Input: an owner (a pod or workload), a name for its socket, and its doorway (the socket's path, and which processes may
connect). Output: the owner of the socket through which a client has connected, given the server's address at which the
connection arrived. The server itself listens on sockets in a directory that only root can enter; each workload socket
forwards its connections to one of these server sockets.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from weft.node.door import DoorError, Doorway, WorkloadSocket
from weft.xds.server import ListenError, XdsServer

OwnerT = TypeVar("OwnerT")


class Entrances(Generic[OwnerT]):
    def __init__(self, private: Path, server: XdsServer) -> None:
        self._private, self._server = private, server
        self._open: dict[str, _Entrance[OwnerT]] = {}  # by name
        self._owners: dict[str, OwnerT] = {}  # by the server's listening address
        self._numbers = itertools.count()

    async def open(self, name: str, owner: OwnerT, doorway: Doorway) -> None:
        """Open the workload's socket at `doorway` and connect it to a listening address of the server that belongs
        to `owner` alone. `name` identifies the socket in later calls. Raises DoorError if the socket or the
        server's address cannot be opened."""
        self._private.mkdir(mode=0o700, parents=True, exist_ok=True)
        inner = self._private / f"{next(self._numbers)}"
        inner.unlink(missing_ok=True)  # left by an agent that was killed
        try:
            address = await self._server.listen(f"unix:{inner}")
        except ListenError as error:
            raise DoorError(str(error)) from error
        self._owners[address] = owner
        door = WorkloadSocket(doorway, os.fspath(inner))
        try:
            await door.open()
        except BaseException:
            await self._forget(address)
            raise
        self._open[name] = _Entrance(owner, doorway, door, address)

    async def close(self, name: str, *, gone: bool) -> bool:
        """Close the socket of `name` and return whether there was one. The socket's directory is deleted only if its
        owner has ended (`gone`); otherwise another agent may open the socket again."""
        entrance = self._open.pop(name, None)
        if entrance is None:
            return False
        await entrance.door.close(gone=gone)
        await self._forget(entrance.address)
        return True

    def names(self) -> tuple[str, ...]:
        return tuple(self._open)

    def doorway(self, name: str) -> Doorway | None:
        entrance = self._open.get(name)
        return entrance.doorway if entrance else None

    def owner(self, address: str) -> OwnerT | None:
        """Return the owner of the socket that leads to this listening address of the server; None if that socket was
        closed."""
        return self._owners.get(address)

    def owners(self) -> list[OwnerT]:
        return [each.owner for each in self._open.values()]

    async def _forget(self, address: str) -> None:
        del self._owners[address]
        await self._server.stop(address)
        Path(address.removeprefix("unix:")).unlink(missing_ok=True)


class _Entrance(NamedTuple, Generic[OwnerT]):
    owner: OwnerT
    doorway: Doorway
    door: WorkloadSocket
    address: str
