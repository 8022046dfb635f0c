"""All of a cluster at once, from a real API server, with the rights of whoever asks."""

import json

import msgspec
import pytest
from tools.kube.process import wait_for

from kube.cluster import client_of, put
from kube.manifests import definition, endpoint, endpoint_slice, pod, service, virtual_service
from weft.inspect.rehearse.examination import Running, examine
from weft.kube.client import Client
from weft.kube.config import load
from weft.kube.inventory import take
from weft.model.names import ObjectKey

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ENVOY_FILTERS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "envoyfilters.networking.istio.io"},
    "spec": {
        "group": "networking.istio.io",
        "scope": "Namespaced",
        "names": {"kind": "EnvoyFilter", "plural": "envoyfilters", "singular": "envoyfilter"},
        "versions": [
            {
                "name": "v1alpha3",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.fixture(scope="module")
def cluster(api_server):
    for manifest in (definition("VirtualService"), ENVOY_FILTERS):
        put(api_server, manifest)
        name = manifest["metadata"]["name"]

        def established(name=name):
            conditions = api_server.request("GET", f"{CRDS}/{name}").get("status", {}).get("conditions") or ()
            return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

        wait_for(established, f"definition {name} to be ready", timeout=60)
    return api_server


async def test_written_objects_are_documents_and_pods_are_values(cluster):
    shop = cluster.make_namespace("inventory-shop", labels={"istio-injection": "enabled"})
    put(cluster, service("web", shop), pod("web-0", shop, "10.0.9.1"), virtual_service("web", shop, "web"))
    put(cluster, pod("old-0", shop, "10.0.9.2", phase="Succeeded"))
    put(cluster, endpoint_slice("web-x", shop, "web", endpoint("10.0.9.1", "web-0", shop)))
    filters = f"/apis/networking.istio.io/v1alpha3/namespaces/{shop}/envoyfilters"
    body = {"apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter", "metadata": {"name": "lua"}}
    cluster.request("POST", filters, body)
    async with client_of(cluster) as client:
        found = await take(client)
    keys = {each.key for each in found.documents}
    for kind, namespace, name in (
        ("Namespace", "", shop),
        ("ServiceAccount", shop, "default"),
        ("Service", shop, "web"),
        ("VirtualService", shop, "web"),
        ("EnvoyFilter", shop, "lua"),
        ("Pod", shop, "web-0"),
    ):
        assert ObjectKey(kind, namespace, name) in keys, kind
    values = {key for key, _ in found.values if key.namespace == shop}
    assert values == {ObjectKey("Pod", shop, "web-0"), ObjectKey("EndpointSlice", shop, "web-x")}
    assert found.problems == ()


async def test_the_injectors_settings_and_the_meshs_are_found_in_the_root_namespace(cluster):
    root = cluster.make_namespace("inventory-root")
    maps = f"/api/v1/namespaces/{root}/configmaps"
    for name, data in (
        ("istio", {"mesh": "{}"}),
        ("istio-sidecar-injector", {"settings": "{}", "values": "{}"}),
        ("istio-sidecar-injector-canary", {"settings": json.dumps({"image": "weft:2"})}),
        ("other", {"values": "{}"}),
    ):
        cluster.request("POST", maps, {"metadata": {"name": name}, "data": data})
    async with client_of(cluster) as client:
        found = await take(client, root_namespace=root)
    assert found.injectors == {
        "default": {"settings": "{}", "values": "{}"},
        "canary": {"settings": '{"image": "weft:2"}'},
    }
    assert [each.key for each in found.documents if each.key.kind == "ConfigMap"] == [
        ObjectKey("ConfigMap", root, "istio")
    ]


async def test_without_permissions_each_unreadable_kind_is_a_problem(cluster):
    place = cluster.make_namespace("inventory-stranger")
    asked = f"/api/v1/namespaces/{place}/serviceaccounts/default/token"
    token = cluster.request("POST", asked, {"spec": {"audiences": []}})["status"]["token"]
    connection = msgspec.structs.replace(
        load(cluster.kubeconfig),
        token=token,
        client_certificate="",
        client_certificate_file="",
        client_key="",
        client_key_file="",
    )
    async with Client(connection) as client:
        found = await take(client)
    assert found.documents == ()
    assert {problem.code for problem in found.problems} == {"WFT0817"}
    assert any("pods cannot be read: 403" in problem.what for problem in found.problems)


async def test_an_inventory_can_be_analyzed(cluster):
    shop = cluster.make_namespace("inventory-wrong", labels={"istio-injection": "enabled"})
    put(cluster, service("web", shop), pod("web-0", shop, "10.0.9.3", proxy=False, ready=False))
    put(cluster, virtual_service("web", shop, "wbe"))
    async with client_of(cluster) as client:
        found = await take(client)
    problems = examine(found.documents, running=Running(found.values)).problems
    mine = {(each.code, each.where.object) for each in problems if shop in each.where.object}
    assert mine == {
        ("WFT0101", f"VirtualService {shop}/web"),
        ("WFT0104", f"VirtualService {shop}/web"),
        ("WFT0317", f"Service {shop}/web"),
        ("WFT0804", f"Pod {shop}/web-0"),
    }
