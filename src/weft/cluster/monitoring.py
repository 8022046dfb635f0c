"""Port 15014: whether the control plane lives, whether it is ready, and what it counts, for anybody; and what it knows
of the mesh, under `/debug`, for who is let in (`debug_access.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp import web

from weft.base.http_site import HttpSite
from weft.inspect.debug.pages import LONGEST_QUESTION

Counts = Callable[[], Mapping[str, float]]

_MOST_OF_ONE_HOST = 32  # connections: kubelet and who collects figures have a few each


class Monitoring:
    def __init__(
        self,
        ready: Callable[[], str],
        counts: Counts,
        more: Callable[[], str] = str,
        pages: tuple[web.RouteDef, ...] = (),
    ) -> None:
        """`ready`: why it is not, or nothing. `counts`: by Prometheus name, with labels in it where there are some.
        `more`: what others count, in Prometheus' words already. `pages`: what others answer."""
        self._pages = pages
        self._ready = ready
        self._counts = counts
        self._more = more
        self._site: HttpSite | None = None

    async def listen(self, host: str | None, port: int) -> int:
        """None: on every address. Returns the port. Raises OSError."""
        app = web.Application(client_max_size=LONGEST_QUESTION)
        app.router.add_get("/healthz", self._live)
        app.router.add_get("/ready", self._is_ready)
        app.router.add_get("/metrics", self._metrics)
        app.add_routes(self._pages)
        self._site = HttpSite(app, most_of_one_host=_MOST_OF_ONE_HOST)
        return await self._site.listen(host, port)

    async def close(self) -> None:
        if self._site is not None:
            await self._site.close()

    async def _live(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _is_ready(self, _request: web.Request) -> web.Response:
        why = self._ready()
        return web.Response(status=503 if why else 200, text=f"{why or 'ready'}\n")

    async def _metrics(self, _request: web.Request) -> web.Response:
        lines = [f"{name} {value:g}\n" for name, value in sorted(self._counts().items())]
        return web.Response(text="".join(lines) + self._more(), content_type="text/plain", charset="utf-8")
