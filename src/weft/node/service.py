"""The agent as a process of its own on a machine without Kubernetes: watches the registration files of a directory and
serves each workload its certificate.

No state is kept for the next start, on disk or elsewhere. After an agent was killed, Envoys run on with what they have
and reconnect. The new agent creates the sockets again at the same paths, and every workload gets a new key and
certificate. Only an Envoy that starts while both the agent and the CA are down has to wait, and is not ready meanwhile.
To avoid that, keys would have to outlive the process that generated them.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path

from weft.ca.signer import Signer
from weft.node.agent import Agent
from weft.node.door import DoorError, Doorway
from weft.node.identities import Bearer
from weft.node.key import KeyKind
from weft.node.registrations import (
    DirectoryRefused,
    Registration,
    refuse_unless_ours_alone,
    watch_registrations,
)
from weft.node.tokens import token_in

log = logging.getLogger("weft.node.service")

_PRIVATE = ".agent"  # in the directory of registrations, which only root can enter
_LOCK = "lock"
_RETRY = 2.0  # seconds until the creation of a failed socket is retried


class NodeService:
    def __init__(self, directory: Path, signer: Signer, *, lifetime: timedelta) -> None:
        self._directory = directory
        self._wanted: dict[str, Registration] = {}
        self._served: dict[str, Registration] = {}
        self._changed = asyncio.Event()
        self.agent = Agent(signer, directory / _PRIVATE, lifetime=lifetime)

    async def run(self) -> None:
        """Run until cancelled. Raises DirectoryRefused at the start."""
        refuse_unless_ours_alone(self._directory)
        with _alone(self._directory / _PRIVATE):
            await self._run()

    async def _run(self) -> None:
        self.agent.start()
        following = asyncio.create_task(self._keep_following())
        try:
            async with aclosing(watch_registrations(self._directory)) as batches:
                async for registrations in batches:
                    self._wanted = {each.name: each for each in registrations.values()}
                    self._changed.set()
        finally:
            following.cancel()
            await asyncio.wait({following})
            await self.agent.close()

    async def _keep_following(self) -> None:
        while True:
            self._changed.clear()
            done = await self._follow()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if done else _RETRY):
                    await self._changed.wait()

    async def _follow(self) -> bool:
        for name, registration in tuple(self._served.items()):
            if self._wanted.get(name) != registration:
                del self._served[name]
                if name in self._wanted:
                    continue  # replaced below by the new registration of the same name
                await self.agent.remove(name)
                log.info("%s: removed, because its registration was removed", name)
        for name, registration in tuple(self._wanted.items()):
            if name in self._served:
                continue
            try:
                await self.agent.add(_bearer(registration), _doorway(registration))
            except (DoorError, OSError) as error:
                log.error("%s: cannot open the workload's socket, so its proxy gets no certificate: %s", name, error)
                continue
            except Exception:
                log.exception("%s: the workload's proxy gets no certificate, because of an unexpected error", name)
                continue
            self._served[name] = registration
            log.info("%s: serving %s at %s", name, registration.identity, registration.socket)
            if registration.key is KeyKind.ED25519:
                log.warning(
                    "%s: Envoys reject Ed25519 certificates; use another key if the workload's peers are Envoys",
                    name,
                )
        return self._served == self._wanted


@contextlib.contextmanager
def _alone(private: Path) -> Iterator[None]:
    """Hold the lock in the directory `private` that only one agent can have: two agents would replace each other's
    sockets. Delete the sockets that a killed agent left in `private`. Raises DirectoryRefused if another agent has the
    lock."""
    private.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(private / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            what = "another agent already uses this directory"
            raise DirectoryRefused(
                what, f"find that agent with: fuser {private / _LOCK}", file=private.parent
            ) from None
        for left in private.iterdir():
            if left.name != _LOCK:
                left.unlink()
        yield
    finally:
        os.close(lock)


def _bearer(registration: Registration) -> Bearer:
    return Bearer(
        name=registration.name,
        identity=registration.identity,
        token=token_in(Path(registration.token_file)),
        key=registration.key,
    )


def _doorway(registration: Registration) -> Doorway:
    network = registration.network_namespace
    return Doorway(
        path=Path(registration.socket),
        uid=registration.uid,
        gid=registration.gid,
        network=Path(network) if network else None,
    )
