"""Agents and the control plane, over real TLS and streams, with proxies on the agents' sockets."""

import asyncio
import contextlib

import grpc.aio
import pytest

from control.proxy import NODE, Client, changes
from control.test_plane import ON_DEMAND
from control.test_quarantine import Picky, routes, services, settles
from model.builders import group
from relay_rig import Placed, cluster, doorway, pod, until
from weft.control.access import Principal
from weft.control.plane import ControlPlane
from weft.control.relays import Relays
from weft.model.group import Group
from weft.node.relay import Relay
from weft.translate.names import AGAIN
from weft.xds.clients import Sync
from weft.xds.request import StreamRefused
from weft.xds.types import CLUSTER, LISTENER, ROUTE

ORDERS = "outbound|80||orders.shop.svc.cluster.local"


@contextlib.asynccontextmanager
async def relayed(rig, directory, node="node-1", name="web-0", of=None):
    """A pod on a node, an agent there, and a channel to the pod's socket."""
    relay = rig.agent(node, directory)
    rig.placed.put(f"uid-{name}", node, of or group("web"))
    await relay.add(pod(name), doorway(directory / name))
    try:
        async with grpc.aio.insecure_channel(f"unix:{directory / name / 'xds'}") as channel:
            yield relay, channel
    finally:
        await relay.close()


async def test_a_proxy_behind_an_agent_is_served_and_listed(tmp_path):
    async with cluster(changes(services())) as rig, relayed(rig, tmp_path) as (relay, channel):
        client = Client(channel)
        await client.subscribe(CLUSTER)
        clusters = await client.read()
        assert ORDERS in {resource.name for resource in clusters.resources}
        await until(lambda: [proxy.sync for proxy in rig.plane.proxies()] == [Sync.STALE])
        await client.answer(clusters)
        await until(lambda: [proxy.sync for proxy in rig.plane.proxies()] == [Sync.SYNCED])
        (proxy,) = rig.plane.proxies()
        assert (proxy.node_id, proxy.group, proxy.types) == (NODE, group("web"), {CLUSTER: Sync.SYNCED})
        rig.plane.apply(changes(services().replace("port: 80", "port: 81")))
        await until(lambda: rig.plane.proxies()[0].sync is Sync.STALE)
        answering = asyncio.create_task(answer_all(client))
        await until(lambda: rig.plane.proxies()[0].sync is Sync.SYNCED)
        (node,) = rig.plane.nodes()
        assert (node.node, node.pods, node.groups, node.settled) == ("node-1", 1, (group("web"),), True)
        assert node.bytes_sent == relay.upstream.bytes_received > 0
        client.cancel()
        await until(lambda: not rig.plane.proxies())
        await asyncio.gather(answering, return_exceptions=True)


async def answer_all(client):
    """Acknowledge all responses: removals may be in a separate one."""
    while True:
        await client.answer(await client.read())


async def test_a_nack_behind_an_agent_is_a_problem_of_the_object_at_fault_only(tmp_path):
    async with cluster(changes(services())) as rig, relayed(rig, tmp_path) as (_, channel):
        proxy = Picky(channel)
        running = asyncio.create_task(proxy.run())
        await settles(rig.plane, proxy, {"orders": "/", "stock": "/"})
        rig.plane.apply(changes(routes(stock="/bad", cart="/b")))
        await settles(rig.plane, proxy, {"stock": "/", "cart": "/b"}, blamed=["stock"])
        rig.plane.apply(changes(routes(orders="/later")))
        await settles(rig.plane, proxy, {"stock": "/", "orders": "/later"}, blamed=["stock"])
        rig.plane.apply(changes(routes(stock="/good")))
        await settles(rig.plane, proxy, {"stock": "/good", "orders": "/later"})
        running.cancel()


async def test_a_control_plane_that_has_just_started_gets_the_versions_that_proxies_accepted(tmp_path):
    async with cluster(changes(services())) as rig, relayed(rig, tmp_path) as (relay, channel):
        proxy = Picky(channel)
        running = asyncio.create_task(proxy.run())
        await settles(rig.plane, proxy, {"orders": "/", "stock": "/"})
        await rig.close()
        await until(lambda: not relay.upstream.connected)
        plane = ControlPlane(placements=rig.placed)
        plane.apply(changes(services()))
        await rig.open(plane)
        of = group("web")
        await until(
            lambda: plane._snapshots.accepted(of, ROUTE, "80") and plane._snapshots.accepted(of, CLUSTER, ORDERS)
        )
        plane.apply(changes(routes(stock="/bad")))
        await settles(plane, proxy, {"stock": "/", "orders": "/"}, blamed=["stock"])
        running.cancel()


async def test_groups_are_kept_while_an_agent_or_a_proxy_needs_them(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.control.plane.IDLE_SECONDS", 0.0)
    async with cluster(changes(services())) as rig:
        async with (
            relayed(rig, tmp_path / "one") as (one, _),
            relayed(rig, tmp_path / "two", "node-2", "web-1") as (two, _),
        ):
            await until(lambda: one.placed("uid-web-0") and two.placed("uid-web-1"))
            assert list(rig.plane._push.groups()) == [group("web")]
            await one.remove("uid-web-0")
            await until(lambda: [node.groups for node in rig.plane.nodes() if node.node == "node-1"] == [()])
            assert list(rig.plane._push.groups()) == [group("web")]
        await until(lambda: not list(rig.plane._push.groups()))


async def test_an_agent_waits_until_the_control_plane_has_its_first_objects(tmp_path):
    placed = Placed()
    placed.listed = False
    async with cluster(placed=placed) as rig, relayed(rig, tmp_path) as (_, channel):
        client = Client(channel)
        await client.subscribe(CLUSTER)
        await until(rig.plane.nodes)
        rig.plane.apply(changes(services()))
        placed.listed = True
        placed.tell("node-1")
        assert ORDERS in {resource.name for resource in (await client.read()).resources}


async def test_an_edit_of_a_pods_labels_moves_its_proxy_to_its_new_group(tmp_path):
    async with cluster(changes(services())) as rig, relayed(rig, tmp_path) as (_, channel):
        client = Client(channel)
        await client.subscribe(CLUSTER)
        await client.answer(await client.read())
        rig.placed.put("uid-web-0", "node-1", group("web", tier="gold"))
        assert await client.code() is grpc.StatusCode.ABORTED
        again = Client(channel)
        await again.subscribe(CLUSTER)
        await again.answer(await again.read())
        await until(lambda: [proxy.group for proxy in rig.plane.proxies()] == [group("web", tier="gold")])


async def test_an_agent_gets_no_config_of_pods_on_other_nodes(tmp_path):
    async with cluster(changes(services())) as rig, relayed(rig, tmp_path) as (relay, _):
        rig.placed.put("uid-api-0", "node-2", group("api"))
        await relay.add(pod("api-0"), doorway(tmp_path / "api-0"))
        await until(lambda: relay.placed("uid-web-0"))
        await until(lambda: rig.plane.nodes()[0].pods == 2 and rig.plane.nodes()[0].settled)
        assert rig.plane.nodes()[0].groups == (group("web"),) and not relay.placed("uid-api-0")


@pytest.mark.parametrize(
    ("node", "principal", "why"),
    [
        ("node-1", None, "not an agent"),
        ("node-1", Principal("shop", "web", "web-0", "uid-web-0"), "not an agent"),
        ("node-1", Principal("istio-system", "weft-node", is_agent=True), "no token that is bound"),
        (
            "node-1",
            Principal("istio-system", "weft-node", "a", "uid-a", is_agent=True),
            "not known to this control plane",
        ),
        (
            "node-2",
            Principal("istio-system", "weft-node", "b", "uid-b", is_agent=True),
            "runs on node-1, but claims to run on",
        ),
    ],
)
def test_rejects_callers_that_are_not_the_agent_of_the_node(node, principal, why):
    placed = Placed()
    placed.put("uid-b", "node-1")
    with pytest.raises(StreamRefused, match=why):
        Relays(None, placed).admit(node, principal)


def test_admits_the_agent_of_a_node_and_names_groups_by_what_they_are():
    placed = Placed()
    placed.put("uid-b", "node-1")
    relays = Relays(None, placed)
    assert relays.admit("node-1", Principal("istio-system", "weft-node", "b", "uid-b", is_agent=True)) == "node-1"
    assert relays.name(group("web")) == relays.name(Group(*group("web").__reduce__()[1])) != relays.name(group("api"))


async def test_an_agent_without_a_certificate_or_of_another_account_is_rejected(tmp_path):
    async with cluster(changes(services())) as rig:
        for line, why in (
            (rig.line("node-1", certified=False), "is not an agent"),
            (rig.line("node-1", account=("shop", "web")), "is not an agent"),
        ):
            relay = Relay(tmp_path / "private", "node-1", line)
            relay.start()
            await until(lambda relay=relay, why=why: why in relay.upstream.trouble)
            await relay.close()
        assert rig.plane.nodes() == []


async def test_clusters_of_a_proxy_behind_a_new_agent_stay(tmp_path):
    async with cluster(changes(ON_DEMAND)) as rig, relayed(rig, tmp_path) as (_, channel):
        client = Client(channel)
        await client.subscribe(CLUSTER, had={ORDERS: "1", "PassthroughCluster": "1"})
        response = await client.read()
        outbound = {each.name for each in response.resources if each.name.startswith("outbound|")}
        assert (outbound, response.removed_resources) == ({ORDERS}, [])


async def test_enabling_on_demand_removes_nothing_from_an_agents_proxies(tmp_path):
    """A new service is sent when it is called."""
    (_, _, orders) = ON_DEMAND.rpartition("---")[0].partition("---")
    async with cluster(changes(orders)) as rig, relayed(rig, tmp_path) as (relay, _):
        await until(lambda: relay.placed("uid-web-0"))
        (name,) = relay._copy.snapshots.groups()
        before = set(relay._copy.snapshots.resources(name, CLUSTER))
        assert ORDERS in before
        await rig.close()
        plane = ControlPlane(placements=rig.placed)
        plane.apply(changes(ON_DEMAND))
        await rig.open(plane)
        await until(lambda: AGAIN in relay._copy.snapshots.resources(name, LISTENER))
        assert set(relay._copy.snapshots.resources(name, CLUSTER)) == before


def test_no_agent_loses_its_stream_when_a_wanted_cluster_cannot_be_pushed(caplog):
    class Failing:
        def want(self, group, names, had=()):
            raise ValueError("nobody thought of this")

    Relays(Failing(), None).want(group("web"), (), (ORDERS,))
    assert "nobody thought of this" in caplog.text
