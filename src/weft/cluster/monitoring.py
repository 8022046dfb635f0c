"""Port 15014: whether the control plane lives, whether it is ready, and what it counts, for anybody; and what it knows
of the mesh, under `/debug`, for who is let in (`debug_access.py`)."""

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
        """`ready`: why it is not, or nothing. `pages`: what others answer."""
        super().__init__(ready, metrics, well="ready", pages=pages, longest_request=LONGEST_QUESTION)
