"""Port 15014: whether the control plane lives, whether it is ready, and what it counts, for anybody; and what it knows
of the mesh, under `/debug`, for who is let in (`debug_access.py`)."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from weft.base.http_site import HttpSite
from weft.base.metrics_page import MetricSource, MetricsPage
from weft.inspect.debug.pages import LONGEST_QUESTION

_MOST_OF_ONE_HOST = 32  # connections: kubelet and who collects figures have a few each


class Monitoring:
    def __init__(
        self,
        ready: Callable[[], str],
        metrics: tuple[MetricSource, ...] = (),
        pages: tuple[web.RouteDef, ...] = (),
    ) -> None:
        """`ready`: why it is not, or nothing. `pages`: what others answer."""
        self._pages = pages
        self._ready = ready
        self._metrics = MetricsPage(*metrics)
        self._site: HttpSite | None = None

    async def listen(self, host: str | None, port: int) -> int:
        """None: on every address. Returns the port. Raises OSError."""
        app = web.Application(client_max_size=LONGEST_QUESTION)
        app.router.add_get("/healthz", self._live)
        app.router.add_get("/ready", self._is_ready)
        app.router.add_get("/metrics", self._metrics.respond)
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
