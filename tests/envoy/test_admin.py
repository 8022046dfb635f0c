import asyncio
import json
import socket

import pytest

from eventually import eventually
from weft.envoy.admin import Admin, parse_stats
from weft.envoy.binary import EnvoyError
from weft.netns import namespace as netns

pytestmark = pytest.mark.root


async def test_is_not_ready_before_there_is_anything():
    async with Admin(lambda: socket.socket(), port=1) as admin:
        assert await admin.ready() is False
        with pytest.raises(EnvoyError, match="did not answer /clusters"):
            await admin.clusters()


async def test_a_missing_namespace_is_not_ready_either():
    async with Admin(lambda: netns.socket_in(netns.NetworkNamespace("weft-none"))) as admin:
        assert await admin.ready() is False


async def test_reads_readiness_configuration_and_clusters_of_a_real_envoy(ready_envoy):
    admin, _, _ = ready_envoy
    assert await admin.ready() is True
    dump = await admin.config_dump(include_endpoints=True)
    assert dump["configs"][0]["bootstrap"]["node"]["metadata"]["WORKLOAD_NAME"] == "web"
    assert {cluster["name"] for cluster in (await admin.clusters())["cluster_statuses"]} == {"xds-grpc", "own-admin"}
    assert (await admin.server_info())["state"] == "LIVE"


async def test_reads_which_listeners_take_connections(ready_envoy):
    admin, _, _ = ready_envoy
    assert await admin.live_listeners() == {"healthz-ready-15021", "stats-prometheus-15090"}
    assert await admin.refused_listeners() == {}


async def test_reads_counters_and_histograms(ready_envoy, namespace):
    admin, _, _ = ready_envoy
    await ask(namespace, 15021, "/healthz/ready")
    stats = await admin.stats(r"^cluster\.own-admin\.")
    assert stats.values["cluster.own-admin.upstream_rq_200"] == 1
    assert stats.values["cluster.own-admin.upstream_rq_total"] == 1
    # Envoy merges the workers' histograms after each request for stats.
    stats = await eventually(
        lambda: admin.stats(r"^cluster\.own-admin\."),
        lambda stats: stats.histograms.get("cluster.own-admin.upstream_rq_time") is not None,
    )
    assert stats.histograms["cluster.own-admin.upstream_rq_time"].total[99] is not None
    assert set(stats.values) == {name for name in stats.values if name.startswith("cluster.own-admin.")}


async def test_changes_the_log_level_drains_and_quits(ready_envoy):
    admin, process, _ = ready_envoy
    await admin.post("/logging", {"upstream": "debug"})
    await admin.drain()
    assert await admin.ready()
    await admin.post("/quitquitquit", {})
    assert await asyncio.wait_for(process.wait(), 20) == 0
    assert await admin.ready() is False


async def test_a_request_that_envoy_rejects_is_an_error_with_its_text(ready_envoy):
    admin, _, _ = ready_envoy
    with pytest.raises(EnvoyError, match="Envoy web-0: error: Envoy answered POST /logging with 400"):
        await admin.post("/logging", {"level": "loud"})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"not json", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b'{"stats": [{"name": 1}]}', "unknown form"),
        (b'{"stats": [{"histograms": {"computed_quantiles": [{"name": "x"}]}}]}', "unknown form"),
    ],
)
async def test_invalid_responses_are_envoy_errors(body, message):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, Admin(socket.socket, port=server.sockets[0].getsockname()[1]) as admin:
        with pytest.raises(EnvoyError, match=message):
            await admin.stats()


async def test_an_envoy_that_hangs_is_given_up():
    async def hang(reader, writer):
        await reader.read()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    async with server, Admin(socket.socket, port=server.sockets[0].getsockname()[1], timeout=0.1) as admin:
        with pytest.raises(EnvoyError, match="did not answer /server_info"):
            await admin.server_info()
        await admin.close()


def test_text_readouts_are_left_out_and_empty_histograms_are_none():
    text = """{"stats": [{"name": "a", "value": 1}, {"name": "control_plane.identifier", "value": "weft"},
      {"histograms": {"supported_quantiles": [50, 99],
       "computed_quantiles": [{"name": "h", "values": [{"cumulative": 2.5, "interval": null},
                                                       {"cumulative": 9, "interval": null}]}]}}]}"""
    stats = parse_stats(json.loads(text))
    assert stats.values == {"a": 1}
    assert stats.histograms["h"].total == {50: 2.5, 99: 9}
    assert stats.histograms["h"].recent == {50: None, 99: None}


async def ask(namespace, port, path):
    async with Admin(lambda: netns.socket_in(namespace), port=port) as client:
        status, body = await client._ask("GET", path, {})
        return status, body.decode()
