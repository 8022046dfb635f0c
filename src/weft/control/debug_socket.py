"""A socket on which a control plane that runs by itself answers its owner: the debug pages and questions that a mesh on
one machine and a cluster's control plane answer, and what it serves from.

Rule: the directory around it lets nobody in but its owner, and root, from the first moment on.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
from aiohttp import web

from weft.control.debug import LONGEST_QUESTION, Debug
from weft.control.debug_access import debug_page


class NotPrivate(Exception):
    """A directory in which others may look, or that is somebody else's."""


class Serving(msgspec.Struct, frozen=True):
    """What a control plane serves from."""

    directory: str
    pid: int


class DebugSocket:
    def __init__(self, debug: Debug, serving: Serving) -> None:
        self._debug, self._serving = debug, serving
        self._runner: web.AppRunner | None = None
        self._path: Path | None = None

    async def listen(self, path: Path) -> None:
        """Its directory is a private one (`make_private`). A socket at which nobody answers any more is replaced.
        Raises OSError."""
        path.unlink(missing_ok=True)
        app = web.Application(client_max_size=LONGEST_QUESTION)
        app.add_routes(
            [
                web.get("/serving", self._served),
                web.get("/debug", self._page),
                web.get("/debug/{name}", self._page),
                web.post("/debug/{name}", self._page),  # a long question
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(path)).start()
        path.chmod(0o600)
        self._path = path

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    async def _served(self, _request: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(self._serving), content_type="application/json")

    async def _page(self, request: web.Request) -> web.Response:
        return await debug_page(self._debug, request)


def make_private(directory: Path) -> None:
    """Raises OSError, or NotPrivate if it is there and not private already: somebody may be looking for its sockets."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise NotPrivate(f"{directory} is not a directory of yours alone") from None
