import asyncio

import pytest
from tools.kube.process import wait_for

from kube.cluster import MERGE, path, put, remove, watched
from kube.manifests import definition, endpoint, endpoint_slice, node, pod, service, virtual_service
from weft.kube.reflector import WatchTiming
from weft.model.group import Group, ProxyKind
from weft.model.names import ObjectKey, labels_of
from weft.model.service import Resolution
from weft.model.settings import Settings

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def established(server, name):
    conditions = server.request("GET", f"{CRDS}/{name}").get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def absent(server, name):
    return not any(each["metadata"]["name"] == name for each in server.request("GET", CRDS)["items"])


def install(server, *kinds):
    for kind in kinds:
        manifest = definition(kind)
        put(server, manifest)
        name = manifest["metadata"]["name"]
        wait_for(lambda name=name: established(server, name), f"definition {name} to be ready", timeout=60)


@pytest.fixture(scope="module")
def cluster(api_server):
    install(api_server, "VirtualService", "PeerAuthentication", "Sidecar")
    put(api_server, node("node-a", region="eu", zone="eu-1", subzone="rack-7"), node("node-b", region="eu"))
    return api_server


async def test_the_first_batch_has_all_objects(cluster):
    shop = cluster.make_namespace("first-shop", labels={"istio-injection": "enabled"})
    put(cluster, service("orders", shop), pod("orders-0", shop, "10.0.1.1", node="node-a", account="default"))
    put(cluster, endpoint_slice("orders-x", shop, "orders", endpoint("10.0.1.1", "orders-0", shop)))
    put(cluster, virtual_service("orders", shop, "orders"))
    async with watched(cluster) as seen:
        await seen.next()
        (found,) = seen.endpoints("orders", shop)
        assert (found.address, found.port, found.locality, found.tls) == ("10.0.1.1", 8080, "eu/eu-1/rack-7", True)
        assert found.service_account == "default" and found.instance == f"{shop}/orders-0"
        for kind, namespace, name in (
            ("VirtualService", shop, "orders"),
            ("Namespace", "", shop),
            ("ServiceAccount", shop, "default"),
        ):
            assert seen.mesh.get(ObjectKey(kind, namespace, name)), (kind, name)
        assert not [each for each in seen.problems.all() if shop in str(each)]
        record = seen.pods.get(shop, "orders-0")
        labels = labels_of({"app": "orders"})
        assert record.group == Group(ProxyKind.SIDECAR, shop, labels, "default", "eu/eu-1/rack-7")
        assert (record.node, record.addresses, record.meshed) == ("node-a", ("10.0.1.1",), True)
        assert seen.pods.by_uid(record.uid) is record and record in seen.pods.on_node("node-a")


async def test_a_pod_that_becomes_ready_changes_only_endpoints(cluster):
    shop = cluster.make_namespace("ready-shop")
    put(cluster, service("orders", shop), service("cart", shop))
    put(cluster, pod("orders-0", shop, "10.0.2.1"), pod("orders-1", shop, "10.0.2.2", ready=False))
    first, second = endpoint("10.0.2.1", "orders-0", shop), endpoint("10.0.2.2", "orders-1", shop, ready=False)
    put(cluster, endpoint_slice("orders-x", shop, "orders", first, second))
    async with watched(cluster) as seen:
        await seen.next()
        assert seen.addresses("orders", shop) == [("10.0.2.1", 8080)]
        put(cluster, pod("orders-1", shop, "10.0.2.2"))
        now = endpoint("10.0.2.2", "orders-1", shop)
        put(cluster, endpoint_slice("orders-x", shop, "orders", first, now))
        touched = await seen.until(lambda: len(seen.addresses("orders", shop)) == 2)
        assert touched.endpoints == {f"orders.{shop}.svc.cluster.local"}
        assert not touched.hosts and not touched.inbound and not touched.scopes


async def test_a_deleted_object_is_removed(cluster):
    shop = cluster.make_namespace("gone-shop")
    held = (
        service("orders", shop),
        pod("orders-0", shop, "10.0.3.1"),
        endpoint_slice("orders-x", shop, "orders", endpoint("10.0.3.1", "orders-0", shop)),
        virtual_service("orders", shop, "orders"),
    )
    put(cluster, *held)
    async with watched(cluster) as seen:
        await seen.until(lambda: seen.addresses("orders", shop))
        kinds = [(each["kind"], each["metadata"]["name"]) for each in held]
        assert all(seen.mesh.get(ObjectKey(kind, shop, name)) for kind, name in kinds)
        remove(cluster, *held)
        await seen.until(lambda: not any(seen.mesh.get(ObjectKey(kind, shop, name)) for kind, name in kinds))
        assert seen.pods.get(shop, "orders-0") is None
        assert seen.statuses[ObjectKey("VirtualService", shop, "orders")] is None


async def test_a_pod_that_has_ended_is_removed_and_another_may_have_its_address(cluster):
    shop = cluster.make_namespace("ended-shop")
    put(cluster, service("orders", shop), pod("old-0", shop, "10.0.4.1", app="orders", phase="Succeeded"))
    put(cluster, pod("failed-0", shop, "10.0.4.1", app="orders", phase="Failed"))
    put(cluster, pod("orders-0", shop, "10.0.4.1", labels={"version": "v2"}))
    put(cluster, endpoint_slice("by-hand", shop, "orders", endpoint("10.0.4.1"), managed=False))
    async with watched(cluster) as seen:
        await seen.next()
        (found,) = seen.endpoints("orders", shop)
        assert found.instance == f"{shop}/orders-0" and seen.pods.get(shop, "old-0") is None
        put(cluster, pod("orders-0", shop, "10.0.4.1", labels={"version": "v2"}, phase="Succeeded"))
        await seen.until(lambda: seen.pods.get(shop, "orders-0") is None)
        assert seen.endpoints("orders", shop)[0].instance == ""


async def test_a_pods_locality_follows_its_nodes_labels_unless_it_has_its_own(cluster):
    shop = cluster.make_namespace("moving-shop")
    put(cluster, node("node-moving", region="eu"), service("orders", shop))
    put(cluster, pod("orders-0", shop, "10.0.5.1", node="node-moving"))
    put(cluster, pod("orders-1", shop, "10.0.5.2", node="node-moving", labels={"istio-locality": "us.us-1"}))
    both = (endpoint("10.0.5.1", "orders-0", shop), endpoint("10.0.5.2", "orders-1", shop))
    put(cluster, endpoint_slice("orders-x", shop, "orders", *both))
    async with watched(cluster) as seen:
        await seen.next()
        assert [each.locality for each in seen.endpoints("orders", shop)] == ["eu", "us/us-1"]
        put(cluster, node("node-moving", region="eu", zone="eu-2"))
        touched = await seen.until(lambda: seen.endpoints("orders", shop)[0].locality == "eu/eu-2")
        assert touched.endpoints == {f"orders.{shop}.svc.cluster.local"} and not touched.hosts
        assert seen.endpoints("orders", shop)[1].locality == "us/us-1"
        groups = [seen.pods.get(shop, name).group.locality for name in ("orders-0", "orders-1")]
        assert groups == ["eu/eu-2", "us/us-1"]


async def test_a_status_update_is_no_change_of_the_object(cluster):
    shop = cluster.make_namespace("status-shop")
    written = virtual_service("orders", shop, "orders")
    put(cluster, written)
    key = ObjectKey("VirtualService", shop, "orders")
    async with watched(cluster) as seen:
        await seen.next()
        accepted = {"type": "Accepted", "status": "True", "reason": "Accepted", "observedGeneration": 1}
        cluster.request("PATCH", path(written, "status"), {"status": {"conditions": [accepted]}}, kind=MERGE)
        await seen.until(lambda: seen.statuses[key].accepted is not None)
        assert (seen.statuses[key].accepted.status, seen.statuses[key].generation) == ("True", 1)
        assert not [change for batch in seen.told[1:] for change in batch.changes if change.key == key]


@pytest.mark.parametrize("revision", ["default", "canary"])
async def test_the_mesh_configuration_of_its_revision_is_read_and_no_other(cluster, revision):
    root = cluster.make_namespace(f"istio-{revision}")
    for name, mode in (("istio", "meshes-default"), ("istio-canary", "meshes-canary")):
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": root}}
        put(cluster, {**config, "data": {"mesh": f"trustDomain: {mode}\nrootNamespace: {root}\n"}})
    async with watched(cluster, root_namespace=root, revision=revision) as seen:
        await seen.next()
        assert seen.mesh.settings.trust_domain == f"meshes-{revision}" and not seen.problems.all()
        remove(cluster, {**config, "metadata": {"name": "istio" if revision == "default" else "istio-canary",
                                                "namespace": root}})  # fmt: skip
        await seen.until(lambda: seen.mesh.settings.trust_domain == Settings().trust_domain)


async def test_a_kind_that_is_installed_later_is_read_and_the_objects_of_a_removed_kind_are_removed(cluster):
    shop = cluster.make_namespace("later-shop")
    key = ObjectKey("DestinationRule", shop, "orders")
    rule = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "DestinationRule",
        "metadata": {"name": "orders", "namespace": shop},
        "spec": {"host": "orders"},
    }
    async with watched(cluster) as seen:
        await seen.next()
        await asyncio.to_thread(install, cluster, "DestinationRule")
        put(cluster, rule)
        await seen.until(lambda: seen.mesh.get(key))
        manifest = definition("DestinationRule")
        remove(cluster, manifest)
        await seen.until(lambda: not seen.mesh.get(key))
        name = manifest["metadata"]["name"]
        await asyncio.to_thread(wait_for, lambda: absent(cluster, name), f"definition {name} to be gone", timeout=60)


async def test_the_resource_version_is_updated_by_a_status_update_that_changes_nothing_else(cluster):
    shop = cluster.make_namespace("revised-shop")
    route = virtual_service("orders", shop, "orders")
    put(cluster, route)
    key, revisions = ObjectKey("VirtualService", shop, "orders"), {}
    async with watched(cluster, revisions=revisions) as seen:
        await seen.next()
        before = revisions[key]
        assert before == cluster.request("GET", path(route))["metadata"]["resourceVersion"]
        conditions = [{"type": "Accepted", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
        cluster.request("PATCH", path(route, "status"), {"status": {"conditions": conditions}}, kind=MERGE)
        await seen.until(lambda: revisions[key] != before)
        assert not [change for batch in seen.told[1:] for change in batch.changes if change.key == key]
        assert revisions[key] == cluster.request("GET", path(route))["metadata"]["resourceVersion"]
        remove(cluster, route)
        await seen.until(lambda: not seen.mesh.get(key))
        assert key not in revisions


async def test_a_kind_is_read_in_another_version_when_one_is_no_longer_served_and_no_object_is_removed(cluster):
    shop = cluster.make_namespace("version-shop")
    sidecar = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "Sidecar",
        "metadata": {"name": "own", "namespace": shop},
        "spec": {"egress": [{"hosts": ["./*"]}]},
    }
    put(cluster, sidecar)
    key = ObjectKey("Sidecar", shop, "own")
    async with watched(cluster) as seen:
        await seen.next()
        assert seen.mesh.get(key)
        versions = definition("Sidecar")["spec"]["versions"]
        offered = [{**each, "served": each["name"] != "v1", "storage": each["name"] == "v1"} for each in versions]
        name = definition("Sidecar")["metadata"]["name"]
        cluster.request("PATCH", f"{CRDS}/{name}", {"spec": {"versions": offered}}, kind=MERGE)
        await seen.until(
            lambda: any(
                change.key == key and change.document and change.document.api_version == "networking.istio.io/v1beta1"
                for change in seen.told[-1].changes
            )
        )
        assert not [
            change for batch in seen.told for change in batch.changes if change.key == key and not change.document
        ]
        cluster.request("PATCH", f"{CRDS}/{name}", {"spec": {"versions": versions}}, kind=MERGE)


async def test_an_invalid_object_is_a_problem_and_does_not_affect_others(cluster):
    shop = cluster.make_namespace("wrong-shop")
    put(cluster, virtual_service("right", shop, "orders"), virtual_service("wrong", shop, "*"))
    async with watched(cluster) as seen:
        await seen.next()
        assert seen.mesh.get(ObjectKey("VirtualService", shop, "right"))
        assert not seen.mesh.get(ObjectKey("VirtualService", shop, "wrong"))
        assert any(each.where.object == f"VirtualService {shop}/wrong" for each in seen.problems.all())


async def test_losing_the_api_server_is_a_problem_and_changes_nothing(cluster):
    shop = cluster.make_namespace("lost-shop")
    put(cluster, service("orders", shop), pod("orders-0", shop, "10.0.6.1"))
    put(cluster, endpoint_slice("orders-x", shop, "orders", endpoint("10.0.6.1", "orders-0", shop)))
    async with watched(cluster, timing=WatchTiming(first_delay=0.1, most_delay=0.5)) as seen:
        await seen.next()
        await asyncio.to_thread(cluster.api.stop, kill=True)
        try:
            await seen.until(lambda: seen.told[-1].problems)
            assert seen.addresses("orders", shop) == [("10.0.6.1", 8080)]
        finally:
            await asyncio.to_thread(cluster.start_api)
        put(cluster, pod("orders-1", shop, "10.0.6.2"))
        await seen.until(lambda: seen.pods.get(shop, "orders-1") and not seen.told[-1].problems)
        assert seen.addresses("orders", shop) == [("10.0.6.1", 8080)]
        assert not [change for batch in seen.told[1:] for change in batch.changes if change.document is None]


# One cluster with a namespace for each way in which a Service can be answered


@pytest.fixture(scope="module")
def cases(cluster):
    def made(name):
        return cluster.make_namespace(f"case-{name}")

    put(cluster, service("orders", made("headless"), clusterIP="None"))
    put(cluster, pod("orders-0", "case-headless", "10.1.0.1", hostname="orders-0", subdomain="orders"))
    put(cluster, endpoint_slice("a", "case-headless", "orders", endpoint("10.1.0.1", "orders-0", "case-headless")))

    put(cluster, service("orders", made("external"), type="ExternalName", externalName="orders.example.com"))

    put(cluster, service("orders", made("unready"), publishNotReadyAddresses=True))
    put(cluster, pod("orders-0", "case-unready", "10.1.1.1", ready=False))
    put(cluster, endpoint_slice("a", "case-unready", "orders", endpoint("10.1.1.1", "orders-0", "case-unready")))

    put(cluster, service("orders", made("named"), {"name": "http", "port": 80, "targetPort": "web"}))
    put(cluster, pod("orders-0", "case-named", "10.1.2.1", ports=[("web", 8080)]))
    put(cluster, pod("orders-1", "case-named", "10.1.2.2", ports=[("web", 9090)]))
    put(cluster, endpoint_slice("a", "case-named", "orders", endpoint("10.1.2.1", "orders-0", "case-named")))
    other = endpoint("10.1.2.2", "orders-1", "case-named")
    put(cluster, endpoint_slice("b", "case-named", "orders", other, ports=[("http", 9090)]))

    put(cluster, service("orders", made("dual")))
    put(cluster, pod("orders-0", "case-dual", "10.1.3.1", "fd00:1::1"))
    put(cluster, endpoint_slice("a", "case-dual", "orders", endpoint("10.1.3.1", "orders-0", "case-dual")))
    sixth = endpoint("fd00:1::1", "orders-0", "case-dual")
    put(cluster, endpoint_slice("b", "case-dual", "orders", sixth, family="IPv6"))

    put(cluster, service("orders", made("ending")))
    for number in (0, 1):
        put(cluster, pod(f"orders-{number}", "case-ending", f"10.1.4.{number + 1}"))
    ending = endpoint("10.1.4.1", "orders-0", "case-ending", ready=False, serving=True, terminating=True)
    put(cluster, endpoint_slice("a", "case-ending", "orders", ending))

    put(cluster, service("orders", made("host"), selector={"app": "orders"}))
    for number in (0, 1):
        put(cluster, pod(f"orders-{number}", "case-host", "192.0.2.7", hostNetwork=True, node="node-b"))
    both = [endpoint("192.0.2.7", f"orders-{number}", "case-host") for number in (0, 1)]
    put(cluster, endpoint_slice("a", "case-host", "orders", *both))

    put(cluster, service("orders", made("manual"), selector={}))
    put(cluster, endpoint_slice("a", "case-manual", "orders", endpoint("192.0.2.8"), managed=False))

    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53}]
    put(cluster, service("orders", made("udp"), *ports))
    put(cluster, pod("orders-0", "case-udp", "10.1.5.1"))
    number = [("dns", 5353, "UDP"), ("dns-tcp", 5354)]
    udp = endpoint("10.1.5.1", "orders-0", "case-udp")
    put(cluster, endpoint_slice("a", "case-udp", "orders", udp, ports=number))

    put(cluster, service("orders", made("two")), service("every", "case-two", selector={"tier": "back"}))
    put(cluster, pod("orders-0", "case-two", "10.1.6.1", labels={"tier": "back"}))
    for name in ("orders", "every"):
        put(cluster, endpoint_slice(name, "case-two", name, endpoint("10.1.6.1", "orders-0", "case-two")))

    notes = {
        "sidecar.istio.io/status": "{}",
        "traffic.sidecar.istio.io/excludeInboundPorts": "8080,9",
    }
    put(cluster, service("orders", made("excluded")))
    put(cluster, pod("orders-0", "case-excluded", "10.1.7.1", annotations=notes, proxy=False))
    excluded = endpoint("10.1.7.1", "orders-0", "case-excluded")
    put(cluster, endpoint_slice("a", "case-excluded", "orders", excluded))
    return cluster


@pytest.fixture
async def seen(cases):
    async with watched(cases) as found:
        await found.next()
        yield found


async def test_the_endpoints_of_a_headless_service_are_its_pods(seen):
    service = next(each for each in seen.mesh.services() if each.namespace == "case-headless")
    assert service.headless and not service.addresses
    assert seen.addresses("orders", "case-headless") == [("10.1.0.1", 8080)]
    assert seen.mesh.secured_ports(service) == (80,)


async def test_an_external_name_is_resolved_by_the_proxy(seen):
    service = next(each for each in seen.mesh.services() if each.namespace == "case-external")
    assert service.resolution is Resolution.DNS
    assert seen.addresses("orders", "case-external") == [("orders.example.com", 80)]


async def test_a_service_may_publish_addresses_that_are_not_ready(seen):
    assert seen.addresses("orders", "case-unready") == [("10.1.1.1", 8080)]


async def test_a_named_target_port_is_resolved_in_each_pod(seen):
    assert seen.addresses("orders", "case-named") == [("10.1.2.1", 8080), ("10.1.2.2", 9090)]
    group = seen.pods.get("case-named", "orders-0").group
    assert [port.number for port in seen.mesh.inbound_ports(group)] == [8080, 9090]


async def test_the_two_addresses_of_a_dual_stack_pod_are_one_endpoint(seen):
    (found,) = seen.endpoints("orders", "case-dual")
    assert (found.address, found.extra_addresses) == ("10.1.3.1", ("fd00:1::1",))


async def test_terminating_pods_are_endpoints_until_another_is_ready(seen, cases):
    assert seen.addresses("orders", "case-ending") == [("10.1.4.1", 8080)]
    ending = endpoint("10.1.4.1", "orders-0", "case-ending", ready=False, serving=True, terminating=True)
    both = (ending, endpoint("10.1.4.2", "orders-1", "case-ending"))
    put(cases, endpoint_slice("a", "case-ending", "orders", *both))
    await seen.until(lambda: seen.addresses("orders", "case-ending") == [("10.1.4.2", 8080)])


async def test_pods_on_the_hosts_network_have_no_proxy_and_may_share_an_address(seen):
    found = seen.endpoints("orders", "case-host")
    assert [each.instance for each in found] == ["case-host/orders-0", "case-host/orders-1"]
    assert not any(each.tls or each.meshed for each in found)
    assert seen.pods.get("case-host", "orders-0").host_network


async def test_a_service_without_a_selector_has_the_endpoints_of_written_slices(seen):
    (found,) = seen.endpoints("orders", "case-manual")
    assert (found.address, found.tls) == ("192.0.2.8", False)


async def test_a_udp_port_does_not_affect_the_tcp_port_of_the_same_number(seen):
    service = next(each for each in seen.mesh.services() if each.namespace == "case-udp")
    udp, tcp = service.ports
    assert seen.mesh.endpoints(service, udp) == ()
    assert [each.port for each in seen.mesh.endpoints(service, tcp)] == [5354]


async def test_one_pod_may_be_an_endpoint_of_two_services(seen):
    assert seen.addresses("orders", "case-two") == seen.addresses("every", "case-two") == [("10.1.6.1", 8080)]
    group = seen.pods.get("case-two", "orders-0").group
    (port,) = seen.mesh.inbound_ports(group)
    assert {service.name for service in port.services} == {"orders", "every"}


async def test_a_port_that_is_excluded_from_interception_is_called_in_plain(seen):
    (found,) = seen.endpoints("orders", "case-excluded")
    assert not found.tls and seen.pods.get("case-excluded", "orders-0").meshed
