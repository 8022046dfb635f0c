"""The page that Prometheus scrapes. Input: sources of metrics. Output: Prometheus' text exposition format.

Rule: each page has its own registry, and values are read at the time of the scrape. So a process keeps its counts in
its own objects only, and not a second time in Prometheus' objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

MetricSource = Callable[[], Iterable[Metric]]


class MetricsPage:
    def __init__(self, *sources: MetricSource) -> None:
        self._registry = CollectorRegistry()
        for source in sources:
            self._registry.register(_LiveCollector(source))

    def text(self) -> str:
        return generate_latest(self._registry).decode()

    async def respond(self, _request: web.Request) -> web.Response:
        return web.Response(body=self.text().encode(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


class _LiveCollector(Collector):
    def __init__(self, source: MetricSource) -> None:
        self._source = source

    def collect(self) -> Iterable[Metric]:
        return self._source()
