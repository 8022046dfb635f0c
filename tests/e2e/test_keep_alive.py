"""A server that closes connections while requests are in flight to it: callers must not notice."""

from __future__ import annotations

import pytest

from e2e.objects import destination_rule, http_service, text, workload
from fields import proves

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLIENTS, EACH = 16, 20


def files(control):
    return {
        "client.yaml": text(workload("client", control=control)),
        "server.yaml": text(workload("server", control=control, serve="raw=8080"), http_service("server")),
        "outside.yaml": text(
            workload(
                "outside", control=control, serve="raw=8080", annotations={"sidecar.istio.io/inject": "false"}
            ),
            http_service("outside"),
        ),
    }  # fmt: skip


async def asked(mesh, host, method, closes_after, pause):
    """Requests in step, with the pause that most likely hits a closed connection."""
    await mesh.tell(host, "close_idle", after=closes_after)
    url = f"http://{host}/{method}"
    return await mesh.tell("client", "paced", url=url, method=method, clients=CLIENTS, each=EACH, pause=pause)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize("host", ["server", "outside"])
async def test_a_server_that_closes_idle_connections_under_load_causes_no_failure(mesh, host, method):
    seen = await asked(mesh, host, method, closes_after=0.1, pause=0.0985)
    assert seen["statuses"] == {"200": CLIENTS * EACH}, seen


async def test_a_post_succeeds_if_the_proxys_idle_timeout_is_shorter_than_the_servers(mesh):
    """Requests that are not idempotent are never retried: the proxy closes idle connections first, after a second."""
    await mesh.tell("server", "close_idle", after=1.5)
    url = "http://server/POST"
    seen = await mesh.tell("client", "paced", url=url, method="POST", clients=CLIENTS, each=4, pause=1.499)
    assert seen["statuses"] == {"200": CLIENTS * 4}, seen


@proves("DestinationRule", "spec.trafficPolicy.connectionPool.http.maxRequestsPerConnection")
async def test_one_request_per_connection_makes_a_post_safe_from_a_short_idle_timeout(mesh):
    await mesh.try_out(destination_rule("server", connectionPool={"http": {"maxRequestsPerConnection": 1}}))
    seen = await asked(mesh, "server", "POST", closes_after=0.1, pause=0.0985)
    assert seen["statuses"] == {"200": CLIENTS * EACH}, seen


async def test_a_reset_get_is_retried_and_a_reset_post_is_not(mesh):
    await mesh.tell("server", "close_idle", after=60)
    before = (await mesh.tell("server", "raw_received")).get("/reset", 0)
    assert (await mesh.get("client", "http://server/reset", method="POST"))["status"] == 503
    assert (await mesh.tell("server", "raw_received"))["/reset"] == before + 1
    assert (await mesh.get("client", "http://server/reset"))["status"] == 503
    assert (await mesh.tell("server", "raw_received"))["/reset"] == before + 1 + 3
