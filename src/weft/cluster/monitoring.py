"""Port 15014: liveness, readiness, metrics and weft's version for every client, and the debug pages under `/debug` for
authorized clients (`weft.inspect.debug.access`)."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from weft import __version__
from weft.base.health_site import HealthSite
from weft.base.metrics_page import MetricSource
from weft.inspect.debug.pages import LONGEST_QUESTION


class Monitoring(HealthSite):
    def __init__(
        self,
        ready: Callable[[], str],
        metrics: tuple[MetricSource, ...] = (),
        pages: tuple[web.RouteDef, ...] = (),
    ) -> None:
        """`ready` returns why the process is not ready, or "". `pages` are additional routes. `metrics`: the functions
        that return metrics."""
        # istioctl sends the second path.
        pages = (web.get("/version", _version), web.get("//version", _version), *pages)
        super().__init__(ready, metrics, well="ready", pages=pages, longest_request=LONGEST_QUESTION)


async def _version(_request: web.Request) -> web.Response:
    return web.Response(text=__version__)  # without a line end: istioctl shows the whole text as the version
