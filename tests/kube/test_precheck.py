"""What is in the way of an installation is found before it begins, on a real API server."""

import msgspec
import pytest

from weft.base.problem import Severity
from weft.install.manifests import manifests
from weft.install.values import values_of
from weft.kube.client import Client
from weft.kube.config import load
from weft.kube.precheck import Plan, check
from weft.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, DEPLOYMENTS, NAMESPACES, NODES, SERVICES

# Of its own, so that nothing of it is on the server already.
VALUES = values_of({"revision": "precheck", "namespace": "precheck"})
PLAN = Plan(manifests(VALUES), "precheck", "/var/lib/kubelet", "example.org/weft:1")


@pytest.fixture
async def client(own_api_server):
    async with Client(load(own_api_server.kubeconfig)) as client:
        yield client


async def problems(client, plan=PLAN):
    return {title.split(" ")[0]: found async for title, found in check(client, plan)}


async def test_an_empty_cluster_has_no_errors(client):
    found = await problems(client)
    assert set(found) == {"Kubernetes", "permissions", "names", "kinds", "pod", "machines", "webhooks"}
    errors = [each for step in found.values() for each in step if each.severity is Severity.ERROR]
    assert errors == []


async def test_missing_permissions_are_listed(own_api_server):
    place = own_api_server.make_namespace("precheck-rights")
    path = f"/api/v1/namespaces/{place}/serviceaccounts/default/token"
    token = own_api_server.request("POST", path, {"spec": {}})["status"]["token"]
    admin = load(own_api_server.kubeconfig)
    connection = msgspec.structs.replace(
        admin, client_certificate="", client_key="", client_certificate_file="", client_key_file="", token=token
    )
    async with Client(connection) as client:
        steps = check(client, PLAN)
        assert (await anext(steps))[1] == []
        (problem,) = (await anext(steps))[1]
        await steps.aclose()
    assert "create clusterroles.rbac.authorization.k8s.io" in problem.what
    assert "cluster-admin" in problem.hint


async def test_an_object_with_wefts_name_that_is_not_wefts_is_an_error(client, own_api_server):
    own_api_server.make_namespace("precheck-names")
    plan = msgspec.structs.replace(PLAN, objects=manifests(values_of({"namespace": "precheck-names"})))
    body = {"metadata": {"name": "istiod"}, "spec": {"ports": [{"port": 1}]}}
    await client.create(SERVICES, body, namespace="precheck-names")
    found = [each for each in (await problems(client, plan))["names"] if each.severity is Severity.ERROR]
    assert [each.where.object for each in found] == ["Service precheck-names/istiod"]
    await client.delete(SERVICES, "istiod", namespace="precheck-names")


async def test_another_control_plane_is_a_warning(client, own_api_server):
    place = own_api_server.make_namespace("precheck-istio")
    template = {"metadata": {"labels": {"app": "istiod"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
    spec = {"selector": {"matchLabels": {"app": "istiod"}}, "template": template}
    await client.create(
        DEPLOYMENTS, {"metadata": {"name": "istiod", "labels": {"app": "istiod"}}, "spec": spec}, namespace=place
    )
    found = [each for each in (await problems(client))["names"] if place in each.where.object]
    assert [each.severity for each in found] == [Severity.WARNING]
    await client.delete(DEPLOYMENTS, "istiod", namespace=place)


def old_definition(stored, plural):
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "metadata": {"name": f"{plural}.precheck.weft.dev"},
        "spec": {
            "group": "precheck.weft.dev",
            "names": {"kind": plural.title(), "plural": plural},
            "scope": "Namespaced",
            "versions": [{"name": stored, "served": True, "storage": True, "schema": schema}],
        },
    }


@pytest.mark.parametrize(("stored", "severity"), [("v1", Severity.WARNING), ("v0", Severity.ERROR)])
async def test_a_definition_of_another_installation_is_a_warning_and_lost_versions_are_an_error(
    client, stored, severity
):
    plural = f"relics{stored}"
    await client.create(CUSTOM_RESOURCE_DEFINITIONS, old_definition(stored, plural))
    ours = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **old_definition("v1", plural)}
    (found,) = (await problems(client, msgspec.structs.replace(PLAN, objects=[ours])))["kinds"]
    assert found.severity is severity
    await client.delete(CUSTOM_RESOURCE_DEFINITIONS, f"{plural}.precheck.weft.dev")


async def test_a_namespace_whose_pod_security_forbids_the_agent_is_reported(client, own_api_server):
    own_api_server.make_namespace("precheck-strict", {"pod-security.kubernetes.io/enforce": "baseline"})
    plan = msgspec.structs.replace(PLAN, namespace="precheck-strict")
    (found,) = (await problems(client, plan))["pod"]
    assert "baseline" in found.what
    await client.delete(NAMESPACES, "precheck-strict")


@pytest.mark.parametrize(
    ("info", "labels", "word"),
    [
        ({"operatingSystem": "windows"}, {}, "windows"),
        ({"architecture": "s390x"}, {}, "s390x"),
        ({"kubeletVersion": "v1.20.0"}, {}, "too old"),
        ({"kubeletVersion": "v1.34.0+k0s"}, {}, "/var/lib/k0s/kubelet"),
        ({}, {"microk8s.io/cluster": "true"}, "/var/snap/microk8s"),
        ({}, {}, ""),
    ],
)
async def test_an_unsuitable_node_is_reported(client, info, labels, word):
    normal = {"operatingSystem": "linux", "architecture": "amd64", "kubeletVersion": "v1.34.3"}
    rest = ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion")
    node_info = {**dict.fromkeys((*rest, "kubeProxyVersion"), ""), **normal, **info}
    await client.create(NODES, {"metadata": {"name": "odd", "labels": labels}})
    await client.patch(NODES, "odd", {"status": {"nodeInfo": node_info}}, subresource="status")
    try:
        found = [each for each in (await problems(client))["machines"] if each.where.object == "Node odd"]
    finally:
        await client.delete(NODES, "odd")
    assert [word in each.what for each in found] == ([True] if word else [])


@pytest.mark.parametrize(("images", "count"), [([], 1), (["docker.io/library/weft:9"], 0)])
async def test_an_image_without_a_registry_must_be_on_the_node(client, images, count):
    await client.create(NODES, {"metadata": {"name": "bare"}})
    held = [{"names": images, "sizeBytes": 1}] if images else []
    await client.patch(NODES, "bare", {"status": {"images": held}}, subresource="status")
    try:
        found = (await problems(client, msgspec.structs.replace(PLAN, image="weft:9")))["machines"]
    finally:
        await client.delete(NODES, "bare")
    assert len([each for each in found if each.where.object == "Node bare"]) == count
