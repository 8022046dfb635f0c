"""Whether this agent is well, for kubelet's probes, and in numbers for Prometheus. Nothing secret is told here.

/healthz    it answers                    /ready    pods can be served; else 503 and why not
/metrics    a few gauges and counters
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from weft.base.http_site import HttpSite
from weft.base.metrics_page import MetricSource, MetricsPage

_MOST_OF_ONE_HOST = 32  # connections: kubelet has one or two


class Health:
    """`lack` says what is not as it must be, and is empty if nothing is."""

    def __init__(self, lack: Callable[[], str], metrics: MetricSource) -> None:
        self._lack, self._metrics = lack, MetricsPage(metrics)
        self._site: HttpSite | None = None

    async def listen(self, host: str | None, port: int) -> int:
        """None: on every address. The port, which is chosen if it is 0. Raises OSError."""
        app = web.Application(client_max_size=1024)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/ready", self._ready)
        app.router.add_get("/metrics", self._metrics.respond)
        self._site = HttpSite(app, most_of_one_host=_MOST_OF_ONE_HOST)
        return await self._site.listen(host, port)

    async def close(self) -> None:
        if self._site is not None:
            await self._site.close()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _request: web.Request) -> web.Response:
        lack = self._lack()
        return web.Response(status=503 if lack else 200, text=f"{lack or 'ok'}\n")
