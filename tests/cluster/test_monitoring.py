from __future__ import annotations

import asyncio

import aiohttp
import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from weft import __version__
from weft.cluster.monitoring import Monitoring


@pytest.fixture
async def ask():
    state = {"why": "the objects of the cluster are not loaded yet"}
    refused = CounterMetricFamily("weft_ca_refused_total", "Refused.", labels=("reason",))
    refused.add_metric(("x",), 1.5)
    pushes = GaugeMetricFamily("weft_pushes", "Pushes.", 3)
    monitoring = Monitoring(lambda: state["why"], (lambda: [refused], lambda: [pushes]))
    port = await monitoring.listen("127.0.0.1", 0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def ask(path, method="GET"):
            async with session.request(method, path) as answer:
                return answer.status, await answer.text()

        ask.state, ask.port = state, port
        yield ask
    await monitoring.close()


async def test_it_is_live_before_it_is_ready_and_reports_why_it_is_not_ready(ask):
    assert (await ask("/healthz"))[0] == 200
    assert await ask("/ready") == (503, "the objects of the cluster are not loaded yet\n")
    ask.state["why"] = ""
    assert (await ask("/ready"))[0] == 200


async def test_metrics_are_in_prometheus_format(ask):
    assert (await ask("/metrics"))[1] == (
        "# HELP weft_ca_refused_total Refused.\n# TYPE weft_ca_refused_total counter\n"
        'weft_ca_refused_total{reason="x"} 1.5\n'
        "# HELP weft_pushes Pushes.\n# TYPE weft_pushes gauge\nweft_pushes 3.0\n"
    )


async def test_the_version_is_served_as_istioctl_reads_it(ask):
    """It sends the path with two slashes, which an HTTP server in Go takes for one."""
    assert await ask("/version") == (200, __version__)
    reader, writer = await asyncio.open_connection("127.0.0.1", ask.port)
    writer.write(b"GET //version HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(__version__.encode())


@pytest.mark.parametrize("path", ["/", "/debug", "/debug/config_dump", "/debug/registryz"])
async def test_unknown_paths_and_methods_are_rejected(ask, path):
    assert (await ask(path))[0] == 404
    assert (await ask("/ready", "POST"))[0] == 405
