"""Runs an Envoy that forwards connections between a mesh and its machine, and starts it again whenever it ends.

Such an Envoy reads its config from files that weft writes, and gets nothing from the control plane. It runs as the
proxies' user, and the kernel kills it when weft's process ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
from asyncio.subprocess import STDOUT, Process
from pathlib import Path

import msgspec

from weft.base.backoff import Backoff
from weft.envoy.command import options
from weft.model.proxy import PROXY_GID, PROXY_UID
from weft.netns.namespace import NetworkError, NetworkNamespace
from weft.netns.process import Spawn, end, spawn
from weft.netns.view import View

log = logging.getLogger("weft.local.forwarding_envoy")

_GRACE = 2.0  # seconds between SIGTERM and SIGKILL


class EnvoyPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where an Envoy runs. `what`: its name in messages. `visible`: the directories that it can read. `namespace`: its
    network; None for the machine's own. `capabilities`: root's capabilities that it keeps."""

    what: str
    working_directory: Path
    visible: tuple[Path, ...]
    namespace: NetworkNamespace | None = None
    capabilities: tuple[str, ...] = ()


class ForwardingEnvoy:
    def __init__(self, binary: Path, bootstrap: Path, place: EnvoyPlace) -> None:
        """`binary`: the Envoy executable. `bootstrap`: its bootstrap file; the log is written beside it."""
        self._binary, self._bootstrap, self._place = binary, bootstrap, place
        self._log = bootstrap.with_suffix(".log")
        self._process: Process | None = None
        self._running: asyncio.Task[None] | None = None
        self.trouble = ""  # why it does not run; "" while it runs

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None and self._process.returncode is None else 0

    def start(self) -> None:
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name=self._place.what)

    async def close(self) -> None:
        """End the Envoy, and return when it has ended. Idempotent."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _run(self) -> None:
        backoff = Backoff(first=0.1, most=10.0)
        try:
            while True:
                try:
                    self._process = await self._start()
                    self.trouble = ""
                    status = await self._process.wait()
                    self.trouble = f"{self._place.what} ended with status {status}; see {self._log}"
                except (NetworkError, OSError) as error:
                    self.trouble = str(error)
                delay = backoff.next()
                log.warning("%s; trying again in %.1f s", self.trouble, delay)
                await asyncio.sleep(delay)
        finally:
            if self._process is not None and self._process.returncode is None:
                await asyncio.shield(end(self._process, _GRACE))

    async def _start(self) -> Process:
        with self._log.open("ab") as output:
            return await spawn(
                Spawn(
                    argv=(str(self._binary), "--config-path", str(self._bootstrap), *options(component_log_level="")),
                    namespace=self._place.namespace,
                    uid=PROXY_UID,
                    gid=PROXY_GID,
                    working_directory=str(self._place.working_directory),
                    view=View(visible=(str(self._binary.parent), *map(str, self._place.visible))),
                    capabilities=self._place.capabilities,
                    stdout=output.fileno(),
                    stderr=STDOUT,
                )
            )


def own_directory(path: Path) -> None:
    """Create a directory that only the proxies' user may enter."""
    path.mkdir(mode=0o700, exist_ok=True)
    os.chown(path, PROXY_UID, PROXY_GID)


def replace(path: Path, text: str) -> None:
    """Write `text` to the file at `path`, unless the file has this content already. The file is replaced by a rename,
    so that Envoy never reads a partial file."""
    fresh = path.with_name(f".{path.name}")
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(0o644)
    fresh.rename(path)
