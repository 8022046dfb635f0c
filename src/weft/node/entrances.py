"""The doors of one server: each of its clients comes in at a socket of its own, and who that is, the socket tells.

Owners come in with a doorway each and a name; the address at which the server was called finds them again. The server
itself listens behind the doors, in a directory that only root can enter.
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
        self._owners: dict[str, OwnerT] = {}  # by the address that was called
        self._numbers = itertools.count()

    async def open(self, name: str, owner: OwnerT, doorway: Doorway) -> None:
        """Raises DoorError."""
        self._private.mkdir(mode=0o700, parents=True, exist_ok=True)
        inner = self._private / f"{next(self._numbers)}"
        inner.unlink(missing_ok=True)  # of an agent that was killed
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
        """Whether there was one. Unless its owner is `gone`, another agent may open it again."""
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
        """Whose entrance was called."""
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
