"""Port 15014: liveness, readiness and metrics for every client, and the debug pages under `/debug` for authorized
clients (`weft.inspect.debug.access`)."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

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
        super().__init__(ready, metrics, well="ready", pages=pages, longest_request=LONGEST_QUESTION)
