from __future__ import annotations

import aiohttp
from prometheus_client.core import GaugeMetricFamily
from tools.ports import free_port

from weft.base.health_site import HealthSite
from weft.cli.parts.node import _address


async def test_serves_liveness_readiness_with_a_reason_and_metrics():
    lack = "kubelet has not come"
    health = HealthSite(lambda: lack, (lambda: [GaugeMetricFamily("weft_node_pods", "Pods.", 3.0)],))
    port = await health.listen("127.0.0.1", 0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:

        async def get(path):
            async with client.get(path) as answer:
                return answer.status, await answer.text()

        assert await get("/healthz") == (200, "ok\n")
        assert await get("/ready") == (503, "kubelet has not come\n")
        lack = ""
        assert await get("/ready") == (200, "ok\n")
        expected = "# HELP weft_node_pods Pods.\n# TYPE weft_node_pods gauge\nweft_node_pods 3.0\n"
        assert await get("/metrics") == (200, expected)
        assert (await get("/"))[0] == 404
    await health.close()


async def test_kubelet_gets_a_response_on_addresses_of_both_families():
    """kubelet calls the pod's first address. If that is IPv6, an agent that listens on IPv4 alone would be restarted
    again and again."""
    port = free_port()
    health = HealthSite(str, ())
    await health.listen(None, port)
    async with aiohttp.ClientSession() as client:
        for host in ("127.0.0.1", "[::1]"):
            async with client.get(f"http://{host}:{port}/healthz") as answer:
                assert answer.status == 200
    await health.close()
    assert _address(":15014") == (None, 15014) and _address("[::1]:80") == ("::1", 80)
