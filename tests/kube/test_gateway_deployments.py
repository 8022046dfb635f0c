from contextlib import asynccontextmanager

import pytest

from kube.cluster import client_of, watched
from kube.standard import put, served, url
from weft.kube import gateway_deployments as module
from weft.kube.client import Client
from weft.kube.config import ApiConnection
from weft.kube.error import ApiError
from weft.kube.gateway_deployments import MANAGER, GatewayDeployments, objects, ports_of
from weft.kube.resource import DEPLOYMENTS, NAMESPACES, SERVICE_ACCOUNTS, SERVICES
from weft.model.gateway import Gateway, GatewayServer
from weft.model.gateway_api import Listener, StandardGateway
from weft.model.service import Protocol, ServicePort

NAME = "gateway.networking.k8s.io/gateway-name"
HTTP = {"name": "http", "port": 80, "protocol": "HTTP"}
ALL = (DEPLOYMENTS, SERVICES, SERVICE_ACCOUNTS)


def manifests(gateway, served=(), **more):
    return objects(gateway, ports_of(gateway, served), "u", service_type="ClusterIP", **more)


def test_the_service_has_the_ports_of_listener_sets_too():
    servers = (GatewayServer(ServicePort(8080, "more", Protocol.HTTP), ("*",)), GatewayServer(ServicePort(80), ("*",)))
    more = Gateway("edge~shop~extra~more", "shop", servers)
    made = manifests(StandardGateway("edge", "shop", "weft", (Listener("a", 80, "HTTP"),)), (more,))
    ports = [(each["name"], each["port"]) for each in made[SERVICES]["spec"]["ports"]]
    assert ports == [("http-80", 80), ("http-8080", 8080)]


def test_listeners_of_one_port_are_one_port_of_the_service():
    listeners = (
        Listener("a", 443, "HTTPS", "a.example.com"),
        Listener("b", 443, "TLS", "b.example.com"),
        Listener("c", 80, "HTTP"),
        Listener("d", 5432, "TCP"),
    )
    made = manifests(StandardGateway("edge", "shop", "weft", listeners))
    ports = [(each["name"], each["port"]) for each in made[SERVICES]["spec"]["ports"]]
    assert ports == [("http-80", 80), ("https-443", 443), ("tcp-5432", 5432)]


def test_pods_of_another_revision_have_the_label_for_its_injector():
    gateway = StandardGateway("edge", "shop", "weft", (Listener("a", 80, "HTTP"),))
    made = manifests(gateway, revision="canary")
    template = made[DEPLOYMENTS]["spec"]["template"]["metadata"]
    assert template["labels"]["istio.io/rev"] == "canary"
    assert template["annotations"] == {"inject.istio.io/templates": "gateway"}


def test_created_objects_have_the_gateways_labels_and_the_labels_for_lookup():
    own = {"labels": (("team", "shop"), (NAME, "another")), "annotations": (("example.com/what", "a b"),)}
    gateway = StandardGateway("edge", "shop", "weft", (Listener("a", 80, "HTTP"),), **own)
    made = manifests(gateway)
    for holder in (*made.values(), made[DEPLOYMENTS]["spec"]["template"]):
        metadata = holder["metadata"]
        assert (metadata["labels"]["team"], metadata["labels"][NAME]) == ("shop", "edge")
        assert metadata["annotations"]["example.com/what"] == "a b"


def test_a_gateway_cannot_set_the_image_or_the_injector_of_its_pods():
    own = {
        "labels": (("istio.io/rev", "canary"), ("sidecar.istio.io/inject", "false"), ("team", "shop")),
        "annotations": (("sidecar.istio.io/proxyImage", "mine"), ("weft.dev/on-demand", "x"), ("a.b/c", "d")),
    }
    gateway = StandardGateway("edge", "shop", "weft", (Listener("a", 80, "HTTP"),), **own)
    pods = manifests(gateway)[DEPLOYMENTS]["spec"]["template"]["metadata"]
    assert pods["labels"] == {"team": "shop", NAME: "edge", "sidecar.istio.io/inject": "true"}
    assert pods["annotations"] == {"a.b/c": "d", "inject.istio.io/templates": "gateway"}


# With a real API server, and the standard's own definitions


@pytest.fixture(scope="module")
def cluster(api_server):
    with served(api_server) as server:
        yield server


class Place:
    def __init__(self, server, seen, client, namespace):
        self.server, self.seen, self.client, self.namespace = server, seen, client, namespace
        self.problems = []

    def note(self, problems):
        self.problems = [each for each in problems if f" {self.namespace}/" in each.where.object]

    async def put(self, name, *, wanted=None, **metadata):
        """A Gateway; once it is known, it is looked at."""
        put(
            self.server,
            "Gateway",
            self.namespace,
            name,
            wanted or {"gatewayClassName": "weft", "listeners": [HTTP]},
            **metadata,
        )
        version = self.server.request("GET", url("Gateway", self.namespace, name))["metadata"]["resourceVersion"]
        await self.seen.until(lambda: version in self.seen.mesh.revisions.values())
        await self.deployments.look()

    async def made(self, resource, name):
        try:
            return await self.client.get(resource, name, namespace=self.namespace)
        except ApiError as error:
            assert error.not_found
            return None


@asynccontextmanager
async def looking(server, namespace, *, revision="default", by=None):
    """What is made in this namespace, beside what other tests have left elsewhere."""
    versions = {}
    async with client_of(server) as client, watched(server, revisions=versions) as seen:
        seen.mesh.revisions = versions
        place = Place(server, seen, client, namespace)
        place.deployments = GatewayDeployments(by or client, seen.mesh, place.note, revision=revision)
        yield place


async def test_a_gateway_gets_objects_that_it_owns(cluster, namespace):
    async with looking(cluster, namespace) as place:
        await place.put("edge")
        uid = cluster.request("GET", url("Gateway", namespace, "edge"))["metadata"]["uid"]
        for resource in ALL:
            metadata = (await place.made(resource, "edge-weft"))["metadata"]
            assert [each["uid"] for each in metadata["ownerReferences"]] == [uid]
            assert [each["manager"] for each in metadata["managedFields"]] == [MANAGER]
            assert metadata["labels"][NAME] == "edge"
        assert place.problems == []


async def test_correct_objects_are_not_written_and_deleted_ones_are_created_again(cluster, namespace, monkeypatch):
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.0)
    async with looking(cluster, namespace) as place:
        await place.put("edge")
        before = await place.made(DEPLOYMENTS, "edge-weft")
        await place.client.delete(SERVICES, "edge-weft", namespace=namespace)
        await place.deployments.look()
        assert await place.made(DEPLOYMENTS, "edge-weft") == before
        assert await place.made(SERVICES, "edge-weft") is not None


async def test_nothing_is_created_for_a_gateway_with_addresses_or_another_class(cluster, namespace):
    own = [{"type": "Hostname", "value": "edge.shop.svc"}]
    async with looking(cluster, namespace) as place:
        await place.put("edge", wanted={"gatewayClassName": "weft", "listeners": [HTTP], "addresses": own})
        await place.put("other", wanted={"gatewayClassName": "theirs", "listeners": [HTTP]})
        for name in ("edge-weft", "other-theirs", "other-weft"):
            assert await place.made(DEPLOYMENTS, name) is None


async def test_objects_that_the_gateway_does_not_own_are_not_changed(cluster, namespace):
    async with looking(cluster, namespace) as place:
        theirs = {"metadata": {"name": "edge-weft"}, "spec": {"ports": [{"port": 1}]}}
        before = await place.client.create(SERVICES, theirs, dict, namespace=namespace)
        await place.put("edge")
        assert await place.made(SERVICES, "edge-weft") == before
        assert await place.made(DEPLOYMENTS, "edge-weft") is None
        (problem,) = place.problems
        assert f"Service {namespace}/edge-weft exists and is not owned by this Gateway" in problem.what


async def test_an_unknown_service_type_is_a_problem(cluster, namespace):
    async with looking(cluster, namespace) as place:
        await place.put("edge", annotations={module.SERVICE_TYPE: "Balancer"})
        (problem,) = place.problems
        assert "`Balancer` is not a type of Service" in problem.what
        await place.put("edge", annotations={module.SERVICE_TYPE: "NodePort"})
        assert (await place.made(SERVICES, "edge-weft"))["spec"]["type"] == "NodePort"
        assert place.problems == []


async def test_each_revision_creates_only_its_own_gateways(cluster, namespace):
    async with looking(cluster, namespace, revision="canary") as place:
        await place.put("edge")
        await place.put("new", labels={"istio.io/rev": "canary"})
        assert await place.made(DEPLOYMENTS, "edge-weft") is None
        assert await place.made(DEPLOYMENTS, "new-weft") is not None
        await place.client.patch(NAMESPACES, namespace, {"metadata": {"labels": {"istio.io/rev": "canary"}}})
        await place.put("edge", annotations={"a": "b"})
        assert await place.made(DEPLOYMENTS, "edge-weft") is not None


async def test_a_forbidden_creation_names_the_value_to_set(cluster, namespace):
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    token = cluster.request("POST", path, {"spec": {"audiences": []}})["status"]["token"]
    async with (
        Client(ApiConnection(server=cluster.server, ca_file=str(cluster.ca), token=token)) as nobody,
        looking(cluster, namespace, by=nobody) as place,
    ):
        await place.put("edge")
        (problem,) = place.problems
        assert "gateways.deployments=true" in problem.hint
