from __future__ import annotations

import aiohttp
import pytest

from weft.cluster.monitoring import Monitoring


@pytest.fixture
async def ask():
    state = {"why": "the objects of the cluster are not here yet"}
    monitoring = Monitoring(lambda: state["why"], lambda: {"weft_pushes": 3, 'weft_ca_refused{reason="x"}': 1.5})
    port = await monitoring.listen("127.0.0.1", 0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def ask(path, method="GET"):
            async with session.request(method, path) as answer:
                return answer.status, await answer.text()

        ask.state = state
        yield ask
    await monitoring.close()


async def test_it_lives_before_it_is_ready_and_says_why_it_is_not(ask):
    assert (await ask("/healthz"))[0] == 200
    assert await ask("/ready") == (503, "the objects of the cluster are not here yet\n")
    ask.state["why"] = ""
    assert (await ask("/ready"))[0] == 200


async def test_it_counts_in_prometheus_words(ask):
    assert (await ask("/metrics"))[1] == 'weft_ca_refused{reason="x"} 1.5\nweft_pushes 3\n'


@pytest.mark.parametrize("path", ["/", "/debug", "/debug/config_dump", "/debug/registryz"])
async def test_nothing_else_is_told(ask, path):
    assert (await ask(path))[0] == 404
    assert (await ask("/ready", "POST"))[0] == 405
