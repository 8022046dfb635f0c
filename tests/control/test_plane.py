"""The control plane, through the streams of its proxies."""

import asyncio
import contextlib

import grpc
import pytest
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment

from control.proxy import NODE, Client, changes, serving
from eventually import eventually
from model.builders import group, instance
from weft.control import intake
from weft.control.plane import ControlPlane
from weft.files import directory
from weft.files.watch import watch
from weft.model.endpoint_slice import EndpointSlice, SliceEndpoint
from weft.model.names import ObjectKey
from weft.xds.clients import Sync
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER

ORDERS = """
apiVersion: v1
kind: Service
metadata: {name: orders, namespace: shop}
spec:
  selector: {app: orders}
  ports: [{name: http, port: 80, targetPort: 8080}]
"""


async def test_a_proxy_is_served_and_its_sync_state_is_known(tmp_path):
    async with serving(tmp_path, ORDERS) as (plane, channel):
        client = Client(channel)
        await client.subscribe(CLUSTER)
        clusters = await client.read()
        assert "outbound|80||orders.shop.svc.cluster.local" in {resource.name for resource in clusters.resources}
        (proxy,) = plane.proxies()
        assert (proxy.node_id, proxy.sync) == (NODE, Sync.STALE)
        await client.answer(clusters)
        await client.subscribe(LISTENER)
        await client.subscribe(ENDPOINT, "outbound|80||orders.shop.svc.cluster.local")
        for _ in range(2):
            await client.answer(await client.read())
        assert await plane.wait_synced(NODE, 10)
        assert plane.proxies()[0].sync is Sync.SYNCED


async def test_a_proxy_that_connects_before_the_objects_are_loaded_waits(tmp_path):
    async with serving(tmp_path) as (plane, channel):
        client = Client(channel)
        await client.subscribe(CLUSTER)
        await eventually(lambda: plane.proxies())
        plane.apply(changes(ORDERS))
        names = {resource.name for resource in (await client.read()).resources}
        assert "outbound|80||orders.shop.svc.cluster.local" in names


async def test_a_socket_of_one_group_refuses_the_proxies_of_another(tmp_path):
    async with serving(tmp_path, ORDERS, only=group("web")) as (_, channel):
        client = Client(channel, namespace="other")
        await client.subscribe(CLUSTER)
        assert await client.code() is grpc.StatusCode.PERMISSION_DENIED
        friend = Client(channel)
        await friend.subscribe(CLUSTER)
        assert (await friend.read()).resources


async def test_a_rejected_resource_is_a_problem_of_its_object_until_it_is_corrected(tmp_path):
    async with serving(tmp_path, ORDERS) as (plane, channel):
        client = Client(channel)
        bad = "outbound|80||orders.shop.svc.cluster.local"
        await client.subscribe(CLUSTER)
        while not plane.problems():
            response = await client.read()
            is_bad = bad in {resource.name for resource in response.resources}
            await client.answer(response, error=f"{bad} is bad" if is_bad else "")
            if is_bad and len(response.resources) == 1:
                await eventually(plane.problems)
        (problem,) = plane.problems()
        assert problem.where.object == "Service shop/orders"
        assert (problem.where.file, problem.where.line) == ("mesh.yaml", 2)
        assert f"{bad} is bad" in problem.what
        plane.apply(changes(ORDERS.replace("port: 80", "port: 81")))
        while plane.problems():
            await client.answer(await client.read())
            await asyncio.sleep(0.01)


async def test_a_group_is_kept_while_one_of_its_proxies_is_connected(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.control.plane.IDLE_SECONDS", 0.0)
    async with serving(tmp_path, ORDERS) as (plane, channel):
        stays, goes = Client(channel), Client(channel)
        for client in (stays, goes):
            await client.subscribe(CLUSTER)
            await client.answer(await client.read())
        goes.cancel()
        await eventually(lambda: len(plane.proxies()) == 1)
        plane.apply(changes(ORDERS.replace("port: 80", "port: 81")))
        assert "outbound|81||orders.shop.svc.cluster.local" in {each.name for each in (await stays.read()).resources}
        stays.cancel()
        await eventually(lambda: not list(plane._push.groups()))


async def test_a_proxy_that_reconnects_in_time_finds_its_group(tmp_path, monkeypatch):
    async with serving(tmp_path, ORDERS) as (plane, channel):
        goes, goes_later = Client(channel), Client(channel, namespace="other")
        for client in (goes, goes_later):
            await client.subscribe(CLUSTER)
            await client.answer(await client.read())
        goes.cancel()
        await eventually(lambda: len(plane.proxies()) == 1)
        back = Client(channel)
        await back.subscribe(CLUSTER)
        await back.read()
        monkeypatch.setattr("weft.control.plane.IDLE_SECONDS", 0.0)
        goes_later.cancel()
        await eventually(lambda: [each.namespace for each in plane._push.groups()] == ["shop"])
        assert not plane._idle


async def test_notifies_listeners_of_changed_objects(tmp_path):
    plane, told = ControlPlane(), []
    plane.on_change.append(told.append)
    plane.apply(changes(ORDERS))
    plane.apply(changes(ORDERS))
    assert [[str(key) for key in keys] for keys in told] == [["Service shop/orders"]]
    await plane.close()


WEB = """
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: web, namespace: shop}
spec: {command: [sleep, infinity]}
"""


async def test_objects_that_do_not_fit_together_are_a_problem_until_they_do():
    plane = ControlPlane()
    plane.apply(changes(ORDERS + "---" + WEB))
    await eventually(plane.problems)
    assert "no workload of namespace shop has the labels app=orders" in plane.problems()[0].what
    plane.apply(changes(WEB.replace("name: web", "name: orders")))
    await eventually(lambda: not plane.problems())
    await plane.close()


async def test_instances_that_are_put_without_documents_clear_findings():
    plane = ControlPlane()
    plane.apply(changes(ORDERS + "---" + WEB))
    await eventually(plane.problems)
    plane.put(ObjectKey("Pod", "shop", "orders-0"), (instance("orders-0", "orders"),))
    await eventually(lambda: not plane.problems())
    await plane.close()


async def test_a_waiting_proxy_gets_objects_and_endpoints_at_once(tmp_path):
    async with serving(tmp_path) as (plane, channel):
        client = Client(channel)
        await client.subscribe(ENDPOINT, "outbound|80||orders.shop.svc.cluster.local")
        await eventually(lambda: plane.proxies())
        pod = (ObjectKey("Pod", "shop", "orders-0"), (instance("orders-0", "orders", by_slice=True),))
        named = EndpointSlice("x", "shop", "orders", (("http", 8080),), (SliceEndpoint("10.244.0.1", "orders-0"),))
        plane.apply(changes(ORDERS), (), [pod, (ObjectKey("EndpointSlice", "shop", "x"), (named,))])
        (first,) = (await client.read()).resources
        found = ClusterLoadAssignment.FromString(first.resource.value)
        assert found.endpoints[0].lb_endpoints[0].endpoint.address.socket_address.port_value == 8080


ON_DEMAND = """
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system, annotations: {weft.dev/on-demand: "true"}}
data: {mesh: "{}"}
---
apiVersion: v1
kind: Service
metadata: {name: orders, namespace: shop}
spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {clusterIP: 10.96.0.2, ports: [{name: http, port: 80}]}
"""


async def test_a_reconnecting_proxy_gets_the_clusters_that_it_had(tmp_path):
    """It connects before the control plane has loaded its objects, and after."""
    orders = "outbound|80||orders.shop.svc.cluster.local"
    async with serving(tmp_path) as (plane, channel):
        client = Client(channel)
        await client.subscribe(CLUSTER, had={orders: "1", "PassthroughCluster": "1"})
        await eventually(lambda: plane.proxies())
        plane.apply(changes(ON_DEMAND))
        response = await client.read()
        outbound = {each.name for each in response.resources if each.name.startswith("outbound|")}
        assert (outbound, response.removed_resources) == ({orders}, [])
        again = Client(channel)
        await again.subscribe(CLUSTER, had={orders.replace("orders", "cart"): "1", "hold|15001|10.96.0.2": "1"})
        response = await again.read()
        outbound = {each.name for each in response.resources if each.name.startswith("outbound|")}
        assert (outbound, response.removed_resources) == ({orders, orders.replace("orders", "cart")}, [])


async def test_a_proxy_that_reconnects_keeps_the_listener_of_a_whole_port(tmp_path):
    orders = "outbound|80||orders.shop.svc.cluster.local"
    async with serving(tmp_path) as (plane, channel):
        plane.apply(changes(ON_DEMAND))
        client = Client(channel)
        await client.subscribe(CLUSTER, had={orders: "1", "hold|15001|10.96.0.1": "1"})
        assert (await client.read()).type_url == CLUSTER
        await client.subscribe(LISTENER, had={"0.0.0.0_80": "1", "virtualOutbound": "1"})
        while (response := await client.read()).type_url != LISTENER:
            pass
        assert "0.0.0.0_80" in {each.name for each in response.resources}
        assert "0.0.0.0_80" not in response.removed_resources


@pytest.fixture
def parsed(monkeypatch):
    """The file of every document that is parsed, in order."""
    files = []
    for module in (directory, intake):
        parse = module.parse
        monkeypatch.setattr(
            module, "parse", lambda document, *rest, parse=parse: files.append(document.file) or parse(document, *rest)
        )
    return files


async def test_a_saved_object_is_parsed_once(tmp_path, parsed):
    plane = ControlPlane()
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(ORDERS)
    async with contextlib.aclosing(watch(tmp_path, reader=plane.reader)) as batches:

        async def saved():
            parsed.clear()
            batch = await asyncio.wait_for(anext(batches), 20)
            plane.apply(batch.changes, batch.problems)
            return parsed

        assert await saved() == [str(first)]
        first.write_text(ORDERS.replace("8080", "8081"))
        assert await saved() == [str(first)]
        first.write_text(ORDERS.replace("port: 80", "port: eighty"))  # this version is rejected
        assert await saved() == [str(first)]
        second.write_text(ORDERS)  # the same object once more
        assert await saved() == [str(second)]
        first.unlink()
        assert await saved() == [str(second)]
    await plane.close()


async def test_an_object_in_two_files_is_parsed_once_in_each(tmp_path, parsed):
    """The directory parses both versions to choose one, and the control plane uses the parsed version."""
    plane = ControlPlane()
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(ORDERS.replace("port: 80", "port: eighty"))  # this version is rejected
    second.write_text(ORDERS)
    async with contextlib.aclosing(watch(tmp_path, reader=plane.reader)) as batches:
        batch = await asyncio.wait_for(anext(batches), 20)
        plane.apply(batch.changes, batch.problems)
        assert [change.document.file for change in batch.changes] == [str(second)]
        assert sorted(parsed) == [str(first), str(second)]
        assert [service.ports[0].number for service in plane.mesh.get(ObjectKey("Service", "shop", "orders"))] == [80]
        parsed.clear()
        first.write_text(ORDERS.replace("8080", "8081"))  # now it is valid and, as the first file, taken
        batch = await asyncio.wait_for(anext(batches), 20)
        plane.apply(batch.changes, batch.problems)
        assert [change.document.file for change in batch.changes] == [str(first)]
        assert parsed == [str(first)]
    await plane.close()


async def test_problems_of_a_text_that_is_not_in_the_files_any_more_are_not_listed():
    plane = ControlPlane()
    bad = "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: shop}\nspec: {ports: [{port: x}]}\n"
    plane.apply(changes(bad))
    assert plane.problems()
    key = ObjectKey("Service", "shop", "a")
    plane.apply([], kept=frozenset({key}))
    assert plane.problems() == ()
    assert [(each.key, each.is_in_force) for each in plane.rejected()] == [(key, False)]
    plane.apply([])
    assert plane.problems()
    await plane.close()
