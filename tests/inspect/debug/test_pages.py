"""Istio's debug pages, as its tools read them."""

from __future__ import annotations

import msgspec
import pytest

from control.proxy import Client, serving
from control.test_plane import ORDERS
from eventually import eventually
from weft.control.plane import ControlPlane
from weft.inspect.attach import attach_debug
from weft.xds.types import CLUSTER


@pytest.fixture
async def debug(tmp_path):
    async with serving(tmp_path, ORDERS) as (plane, channel):
        client = Client(channel)
        await client.subscribe(CLUSTER)
        await client.answer(await client.read())
        await eventually(lambda: plane.diagnosis.proxies()[0].sync.resources[CLUSTER].state == "SYNCED")
        yield attach_debug(plane)


async def read(debug, name, **query):
    answer = await debug.answer(name, query)
    assert (answer.status, answer.content_type) == (200, "application/json")
    return msgspec.json.decode(answer.body)


async def test_syncz_shows_sent_and_acknowledged_versions(debug):
    (proxy,) = await read(debug, "syncz")
    assert proxy["proxy"] == "web-0.shop" and proxy["proxy_type"] == "sidecar"
    assert proxy["cluster_sent"] == proxy["cluster_acked"] == proxy["resources"][CLUSTER]["sent"]
    assert "listener_sent" not in proxy
    assert await read(debug, "syncz", namespace="other") == []


async def test_adsz_shows_connected_proxies_and_their_subscriptions(debug):
    found = await read(debug, "adsz")
    assert found["totalClients"] == 1
    (client,) = found["clients"]
    assert client["connectionId"].startswith("web-0.shop-") and client["connectedAt"].endswith("Z")
    assert client["labels"] == {"app": "web"} and client["metadata"]["NAMESPACE"] == "shop"
    assert client["watches"] == {CLUSTER: []}
    assert await read(debug, "adsz", proxyID="web-0.shop") == found
    (brief,) = (await read(debug, "connections"))["clients"]
    assert sorted(brief) == ["address", "connectedAt", "connectionId"]


async def test_a_dump_is_of_one_proxy(debug):
    dump = await read(debug, "config_dump", proxyID="web-0.shop")
    assert [section["@type"].rpartition(".")[2] for section in dump["configs"]][:2] == [
        "BootstrapConfigDump",
        "ClustersConfigDump",
    ]
    for query, status, words in (
        ({}, 400, "You must provide a proxyID in the query string"),
        ({"proxyID": "nobody"}, 404, "Proxy not connected to this Pilot instance. It may be connected to another"),
    ):
        answer = await debug.answer("config_dump", query)
        assert answer.status == status and words in answer.body.decode() and answer.content_type == "text/plain"
    assert (await debug.answer("adsz", {"proxyID": "nobody"})).status == 404


async def test_registryz_endpointz_and_configz_list_services_endpoints_and_objects(debug):
    (service,) = await read(debug, "registryz")
    assert service["hostname"] == "orders.shop.svc.cluster.local"
    assert list(await read(debug, "endpointz")) == ["orders.shop.svc.cluster.local"]
    assert await read(debug, "endpointz") == await read(debug, "endpointShardz")
    (found,) = await read(debug, "configz")
    assert found["kind"] == "Service" and found["metadata"] == {"namespace": "shop", "name": "orders"}
    assert found["apiVersion"] == "v1" and found["spec"]["ports"]
    assert found["origin"].startswith("mesh.yaml:")


async def test_the_public_part_of_syncz_has_versions_and_no_names(debug):
    (proxy,) = msgspec.json.decode((await debug.public("syncz")).body)
    assert proxy.keys() == {"proxy_type", "istio_version"}


async def test_only_two_pages_have_a_public_part(debug):
    names = [name for name in ("", *await read(debug, "list")) if await debug.public(name) is not None]
    assert names == ["clusterz", "syncz"]


async def test_clusterz_shows_the_one_cluster_of_the_mesh(debug):
    assert await read(debug, "clusterz") == [{"id": "Kubernetes", "secretName": "", "syncStatus": "synced"}]


async def test_clusterz_shows_that_objects_are_not_read_yet():
    plane = ControlPlane()
    (cluster,) = await read(attach_debug(plane, loaded=lambda: False), "clusterz")
    await plane.close()
    assert cluster["syncStatus"] == "syncing"


async def test_the_list_page_names_all_pages(debug):
    names = await read(debug, "list")
    istios = {
        "adsz",
        "clusterz",
        "config_dump",
        "configz",
        "connections",
        "endpointShardz",
        "endpointz",
        "registryz",
        "syncz",
    }
    assert names == sorted(names) and istios <= set(names)
    assert list(await read(debug, "")) == names
    for name in istios:
        assert (await debug.answer(name, {"proxyID": "web-0"})).status == 200


async def test_errors_have_the_texts_that_istioctl_compares(debug):
    answer = await debug.answer("passwords")
    assert (answer.status, answer.body) == (404, b"404 page not found\n")


async def test_pages_can_be_indented(debug):
    assert b"\n  " in (await debug.answer("syncz", {"pretty": ""})).body
    assert b"\n" not in (await debug.answer("syncz")).body
