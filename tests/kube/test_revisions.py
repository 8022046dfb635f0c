"""Who lives by which revision, as a real API server holds it."""

import pytest

from weft.kube.client import Client
from weft.kube.config import load
from weft.kube.resource import DAEMON_SETS, DEPLOYMENTS, NAMESPACES, PODS
from weft.kube.revisions import Revision, Use, move, revisions, uses

LABELS = {"app": "web"}


@pytest.fixture
async def client(own_api_server):
    async with Client(load(own_api_server.kubeconfig)) as client:
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "revisions-"}}
        client.place = (await client.create(NAMESPACES, manifest))["metadata"]["name"]
        own_api_server.make_default_account(client.place)
        yield client
        for resource in (PODS, DEPLOYMENTS, DAEMON_SETS):
            for found in (await client.list(resource, dict, namespace=client.place)).items:
                await client.delete(resource, found["metadata"]["name"], namespace=client.place)
        await client.patch(NAMESPACES, client.place, {"metadata": {"labels": {"istio.io/rev": None}}})
        await client.delete(NAMESPACES, client.place)


async def pod(client, name, driver=""):
    volumes = [{"name": "workload-socket", "csi": {"driver": driver}}] if driver else []
    spec = {"containers": [{"name": "app", "image": "x"}], "volumes": volumes}
    await client.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace=client.place)


async def workload(client, resource, name, *, labels=None, host_network=False):
    template = {
        "metadata": {"labels": {**LABELS, **(labels or {})}},
        "spec": {"hostNetwork": host_network, "containers": [{"name": "app", "image": "x"}]},
    }
    spec = {"selector": {"matchLabels": LABELS}, "template": template}
    await client.create(resource, {"metadata": {"name": name}, "spec": spec}, namespace=client.place)


async def use_of(client):
    return next((use for use in await uses(client) if use.namespace == client.place), None)


async def label(client, **labels):
    names = {"injection": "istio-injection", "rev": "istio.io/rev"}
    await client.patch(
        NAMESPACES, client.place, {"metadata": {"labels": {names[key]: value for key, value in labels.items()}}}
    )


async def test_revisions_are_found_by_their_control_planes(client):
    labels = {"app": "istiod", "app.kubernetes.io/name": "weft", "istio.io/rev": "a", "app.kubernetes.io/version": "7"}
    spec = {
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "app", "image": "x"}]}},
    }
    await client.create(
        DEPLOYMENTS, {"metadata": {"name": "c", "labels": labels}, "spec": spec}, namespace=client.place
    )
    assert Revision("a", client.place, "7") in await revisions(client)


async def test_pods_are_counted_by_the_driver_of_their_identity(client):
    assert await use_of(client) is None
    for name, driver in (("a", "csi.weft.dev"), ("b", "r1.csi.weft.dev"), ("c", "r1.csi.weft.dev"), ("d", "other")):
        await pod(client, name, driver)
    await pod(client, "e")
    assert await use_of(client) == Use(client.place, "", {"default": 1, "r1": 2})


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"injection": "enabled"}, "default"),
        ({"rev": "a"}, "a"),
        ({"injection": "enabled", "rev": "a"}, "default"),
    ],
)
async def test_the_namespaces_labels_choose_the_revision_of_new_pods(client, labels, expected):
    await label(client, **labels)
    assert (await use_of(client)).revision == expected


async def test_a_namespace_with_injection_disabled_uses_no_revision(client):
    await label(client, injection="disabled", rev="a")
    assert await use_of(client) is None


async def test_a_namespace_is_settled_when_all_its_pods_have_its_revision(client):
    await label(client, rev="a")
    await pod(client, "x", "a.csi.weft.dev")
    assert (await use_of(client)).is_settled
    await label(client, rev="b")
    assert not (await use_of(client)).is_settled


async def test_moving_labels_the_namespace_and_restarts_workloads_that_may_have_a_proxy(client):
    await label(client, injection="enabled")
    await workload(client, DEPLOYMENTS, "web")
    await workload(client, DEPLOYMENTS, "plain", labels={"sidecar.istio.io/inject": "false"})
    await workload(client, DAEMON_SETS, "machines", host_network=True)
    assert await move(client, client.place, "b") == [(DEPLOYMENTS, "web")]
    labels = (await client.get(NAMESPACES, client.place))["metadata"]["labels"]
    assert labels["istio.io/rev"] == "b"
    assert "istio-injection" not in labels
    restarted = {}
    for resource, name in ((DEPLOYMENTS, "web"), (DEPLOYMENTS, "plain"), (DAEMON_SETS, "machines")):
        found = await client.get(resource, name, namespace=client.place)
        restarted[name] = "annotations" in found["spec"]["template"]["metadata"]
    assert restarted == {"web": True, "plain": False, "machines": False}
