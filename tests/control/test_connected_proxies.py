"""The status of connected proxies, with their own streams or behind an agent."""

from __future__ import annotations

import asyncio

import grpc.aio

from control.proxy import NODE, Client, changes, serving
from control.test_quarantine import Picky, routes, services
from control.test_relays import relayed
from eventually import eventually
from model.builders import group
from relay_rig import cluster
from weft.control.connected_proxies import syncs
from weft.control.plane import ControlPlane
from weft.control.sync_status import NOT_SENT, STALE, SYNCED
from weft.xds.types import CLUSTER, LISTENER, ROUTE


async def settled(plane, client):
    """Acknowledge the next response and wait until the clusters are synced."""
    await client.answer(await client.read())
    await eventually(lambda: sync(plane, CLUSTER).state == SYNCED)


def sync(plane, type_url):
    return plane.diagnosis.proxies()[0].sync.resources[type_url]


async def test_a_proxy_is_stale_since_the_push_that_it_has_not_acknowledged(tmp_path):
    async with serving(tmp_path, services()) as (plane, channel):
        client = Client(channel)
        await client.subscribe(CLUSTER)
        await eventually(lambda: plane.diagnosis.proxies())
        await settled(plane, client)
        before = sync(plane, CLUSTER)
        assert before.sent == before.acked == str(plane.pushes) and before.sent_time.endswith("Z")
        pushes = plane.pushes
        plane.apply(changes(services().replace("port: 80", "port: 81")))
        await eventually(lambda: sync(plane, CLUSTER).state == STALE)
        await asyncio.sleep(0.15)  # the reported age must be above zero
        first = sync(plane, CLUSTER)
        plane.apply(changes(services().replace("port: 80", "port: 82")))
        await plane.pushed()
        again = sync(plane, CLUSTER)
        assert pushes < first.stale_since_push == again.stale_since_push < plane.pushes
        assert (first.acked, again.acked) == (before.acked, before.acked)
        assert 0.1 <= first.stale_seconds <= again.stale_seconds < 10


async def test_a_proxy_that_got_nothing_yet_is_not_sent(tmp_path):
    async with serving(tmp_path) as (plane, channel):
        client = Client(channel)
        await client.subscribe(CLUSTER)
        await eventually(lambda: plane.diagnosis.proxies())
        found = sync(plane, CLUSTER)
        assert (found.state, found.sent, found.acked) == (NOT_SENT, "", "")


async def test_the_identity_and_subscriptions_of_a_proxy_are_listed(tmp_path):
    async with serving(tmp_path, services()) as (plane, channel):
        client = Client(channel)
        await client.subscribe(CLUSTER)
        await client.subscribe(ROUTE, "80", "81")
        await eventually(lambda: plane.diagnosis.proxies() and len(plane.diagnosis.proxies()[0].sync.resources) == 2)
        (known,) = plane.diagnosis.proxies()
        assert (known.sync.proxy, known.sync.namespace, known.sync.proxy_type) == ("web-0.shop", "shop", "sidecar")
        assert (known.node_id, known.group, known.labels) == (NODE, group("web"), {"app": "web"})
        assert plane.diagnosis.watches(known) == {CLUSTER: (), ROUTE: ("80", "81")}
        assert known.sync.istiod == "weft" and known.sync.connected_at
        assert syncs([known], "shop") == [known.sync] and syncs([known], "other") == []
        for word in ("web-0.shop", NODE, "web-0", "10.244.0.1"):
            assert plane.diagnosis.find(word) == plane.diagnosis.proxies()[0]
        assert plane.diagnosis.find("api-0.shop") is None


async def test_a_nack_is_listed_until_its_cause_is_removed(tmp_path):
    async with serving(tmp_path, services()) as (plane, channel):
        proxy = Picky(channel)
        running = asyncio.create_task(proxy.run())
        await eventually(lambda: proxy.has)
        plane.apply(changes(routes(stock="/bad")))
        await eventually(lambda: plane.problems())
        said = "stock.shop.svc.cluster.local: no such path (mesh.yaml:2: VirtualService shop/stock)"
        assert sync(plane, ROUTE).last_error == said
        plane.apply(changes(routes(stock="/good")))
        await eventually(lambda: not sync(plane, ROUTE).last_error)
        running.cancel()


async def test_a_proxy_behind_an_agent_is_listed_with_its_node(tmp_path):
    async with cluster(changes(services())) as rig, relayed(rig, tmp_path) as (_, channel):
        client = Client(channel)
        await client.subscribe(CLUSTER)
        await eventually(lambda: rig.plane.diagnosis.proxies())
        await settled(rig.plane, client)
        (known,) = rig.plane.diagnosis.proxies()
        assert (known.sync.proxy, known.sync.node, known.stream) == ("web-0.shop", "node-1", 0)
        assert known.sync.cluster_sent == known.sync.cluster_acked != ""
        pushes = rig.plane.pushes
        rig.plane.apply(changes(services().replace("port: 80", "port: 81")))
        await eventually(lambda: sync(rig.plane, CLUSTER).state == STALE)
        await client.read()  # without acknowledging it
        first = sync(rig.plane, CLUSTER).stale_since_push
        assert pushes < first <= rig.plane.pushes
        rig.plane.apply(changes(services().replace("port: 80", "port: 82")))
        await rig.plane.pushed()
        await eventually(lambda: sync(rig.plane, CLUSTER).stale_since_push == first)
        assert rig.plane.diagnosis.proxies()[0].sync.cluster_sent != rig.plane.diagnosis.proxies()[0].sync.cluster_acked


async def test_a_reconnected_proxy_is_not_stale_for_longer_than_it_is_connected(tmp_path):
    async with serving(tmp_path, services()) as (plane, channel):
        client = Client(channel)
        await client.subscribe(CLUSTER)
        await client.read()
        await asyncio.sleep(0.5)  # the unacknowledged push is that old
        async with grpc.aio.insecure_channel(f"unix:{tmp_path}/xds.sock") as other:
            again = Client(other)
            await again.subscribe(CLUSTER)
            await again.subscribe(LISTENER)
            await again.read()
            old, new = (known.sync.resources[CLUSTER] for known in plane.diagnosis.proxies())
            assert old.state == new.state == STALE
            assert new.stale_seconds < 0.5 <= old.stale_seconds


async def test_a_replica_reports_its_name():
    plane = ControlPlane(replica="istiod-7d4f")
    assert plane.diagnosis.replica == "istiod-7d4f"
    await plane.close()
