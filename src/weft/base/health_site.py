"""The HTTP port of a process for kubelet and Prometheus:

/healthz  200 while the process runs
/ready    200 if the process can serve, else 503 and the reason
/metrics  Prometheus metrics
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from weft.base.http_site import HttpSite
from weft.base.metrics_page import MetricSource, MetricsPage

_MOST_OF_ONE_HOST = 32  # connections: kubelet and Prometheus have a few each


class HealthSite:
    def __init__(
        self,
        lack: Callable[[], str],
        metrics: tuple[MetricSource, ...],
        *,
        well: str = "ok",
        pages: tuple[web.RouteDef, ...] = (),
        longest_request: int = 1024,
    ) -> None:
        """`lack` returns why the process is not ready; "" if it is ready. `metrics`: the functions that return the
        metrics of /metrics. `well`: the body of /ready if the process is ready. `pages`: additional routes, whose
        request bodies may have at most `longest_request` bytes."""
        self._lack, self._well = lack, well
        self._metrics = MetricsPage(*metrics)
        self._pages, self._longest_request = pages, longest_request
        self._site: HttpSite | None = None

    async def listen(self, host: str | None, port: int) -> int:
        """Listen on `host` and `port`, and return the port, which the kernel chooses if `port` is 0. Without a host,
        listen on every address. Raises OSError."""
        app = web.Application(client_max_size=self._longest_request)
        app.router.add_get("/healthz", self._live)
        app.router.add_get("/ready", self._ready)
        app.router.add_get("/metrics", self._metrics.respond)
        app.add_routes(self._pages)
        self._site = HttpSite(app, most_of_one_host=_MOST_OF_ONE_HOST)
        return await self._site.listen(host, port)

    async def close(self) -> None:
        if self._site is not None:
            await self._site.close()

    async def _live(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _request: web.Request) -> web.Response:
        lack = self._lack()
        return web.Response(status=503 if lack else 200, text=f"{lack or self._well}\n")
