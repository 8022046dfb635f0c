"""Serve the Unix socket of a standalone control plane (`weft control`): the same debug pages as those of a local
mesh or a cluster's control plane, and the name of the directory from which the control plane reads its objects.

Rule: only the owner and root can enter the socket's directory, from the start.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from aiohttp import web

from weft.inspect.debug.access import debug_page
from weft.inspect.debug.pages import LONGEST_QUESTION, Debug


class Serving(msgspec.Struct, frozen=True):
    """The directory from which a control plane reads its objects, and the control plane's process id."""

    directory: str
    pid: int


class DebugSocket:
    def __init__(self, debug: Debug, serving: Serving) -> None:
        self._debug, self._serving = debug, serving
        self._runner: web.AppRunner | None = None
        self._path: Path | None = None

    async def listen(self, path: Path) -> None:
        """Start to listen on the socket at `path`, and replace a stale socket there. Only the owner may have access
        to the directory of the socket; this method does not check that. Raises OSError."""
        path.unlink(missing_ok=True)
        app = web.Application(client_max_size=LONGEST_QUESTION)
        app.add_routes(
            [
                web.get("/serving", self._served),
                web.get("/debug", self._page),
                web.get("/debug/{name}", self._page),
                web.post("/debug/{name}", self._page),  # for a question that is too long for a URL
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
