"""Reading recent traffic. The proxies here have written no access log; tests/e2e/test_diff.py has real logs. The
cluster is simulated, because kubelet serves logs and the API server of the tests has no kubelet."""

from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from tests.inspect.compare.test_recent_traffic import line

from weft.cli.read import recent_traffic
from weft.cli.read.recent_traffic import seen_here, seen_on_cluster
from weft.kube.client import Client
from weft.kube.config import ApiConnection
from weft.local.client import fetch_status


@pytest.mark.root
def test_a_mesh_that_writes_no_access_log_has_recorded_nothing(weft, mesh, monkeypatch):
    monkeypatch.setenv("WEFT_RUN_DIR", weft.environment["WEFT_RUN_DIR"])
    assert seen_here(fetch_status(mesh)) == ()


def pod(name, *, phase="Running", proxy="istio-proxy", address="10.244.0.2", args=()):
    owner = {"kind": "ReplicaSet", "name": "orders-7d9", "controller": True, "apiVersion": "apps/v1", "uid": "1"}
    labels = {"pod-template-hash": "7d9", "security.istio.io/tlsMode": "istio"}
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": labels, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "app"}, {"name": proxy, "args": list(args)}]},
        "status": {"phase": phase, "podIP": address, "podIPs": [{"ip": address}]},
    }


@asynccontextmanager
async def cluster(*pods):
    asked = []

    async def listed(_request):
        return web.json_response({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": pods})

    async def log(request):
        asked.append((request.match_info["pod"], dict(request.query)))
        if request.match_info["pod"].endswith("closed"):
            return web.json_response({"kind": "Status", "message": "no", "code": 403}, status=403)
        if request.match_info["pod"] == "edge":
            return web.Response(text=f"{line('/o/1')}\n{line('/from-outside', remote='198.51.100.7:1')}\n")
        return web.Response(text=f"{line('/o/1')}\n{line('/o/2')}\nsomething else\n")

    app = web.Application()
    app.router.add_get("/api/v1/pods", listed)
    app.router.add_get("/api/v1/namespaces/shop/pods/{pod}/log", log)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with Client(ApiConnection(server=f"http://127.0.0.1:{runner.addresses[0][1]}"), timeout=5) as client:
            yield client, asked
    finally:
        await runner.cleanup()


async def test_the_last_log_lines_of_a_clusters_proxies_are_read():
    pods = pod("orders-a"), pod("orders-b"), pod("orders-over", phase="Succeeded"), pod("bare", proxy="other")
    async with cluster(*pods) as (client, asked):
        (seen,) = await seen_on_cluster(client)
    assert (str(seen), seen.count) == ("orders.shop GET http://payments:8080/o/* (200)", 4)
    assert {name for name, _ in asked} == {"orders-a", "orders-b"}
    assert asked[0][1] == {"container": "istio-proxy", "tailLines": "2000", "limitBytes": str(1 << 20)}


async def test_a_gateways_log_has_the_requests_of_callers_without_a_proxy():
    router = ["--config-yaml", '{"node": {"id": "router~10.244.0.9~edge.shop~shop.svc.cluster.local"}}']
    async with cluster(pod("orders-a"), pod("edge", address="10.244.0.9", args=router)) as (client, _):
        seen = await seen_on_cluster(client)
    assert [(each.shape, each.count) for each in seen] == [
        ("http://payments:8080/o/*", 2),
        ("http://payments:8080/from-outside", 1),
    ]


async def test_forbidden_logs_are_reported_and_the_others_are_read(capsys):
    async with cluster(pod("orders-a"), pod("orders-closed")) as (client, _):
        (seen,) = await seen_on_cluster(client)
    assert seen.count == 2
    assert "the logs of 1 of 2 proxies could not be read" in capsys.readouterr().err


async def test_with_very_many_proxies_only_some_are_read_and_a_message_is_printed(capsys, monkeypatch):
    monkeypatch.setattr(recent_traffic, "MOST_PROXIES", 1)
    async with cluster(pod("orders-a"), pod("orders-b")) as (client, asked):
        await seen_on_cluster(client)
    assert len(asked) == 1
    assert "recent traffic covers 1 of 2 proxies" in capsys.readouterr().err


async def test_if_pods_cannot_be_listed_no_log_is_read(capsys):
    async with Client(ApiConnection(server="http://127.0.0.1:1"), timeout=1) as client:
        assert await seen_on_cluster(client) == ()
    assert "recent traffic is not included" in capsys.readouterr().err
