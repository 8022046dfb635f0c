"""What was made for Gateways, found and removed on a real API server."""

import asyncio

import msgspec
import pytest

from kube.cluster import client_of
from kube.manifests import pod
from weft.kube.gateway_deployments import objects, ports_of
from weft.kube.made_gateways import made, pods, remove, until_ended
from weft.kube.resource import DEPLOYMENTS, PODS, SERVICE_ACCOUNTS, SERVICES
from weft.model.gateway_api import GATEWAY_NAME, Listener, StandardGateway

ALL = {"Deployment", "Service", "ServiceAccount"}


@pytest.fixture
async def client(api_server):
    async with client_of(api_server) as client:
        yield client


async def make(client, namespace, name="edge", revision="default", **metadata):
    gateway = StandardGateway(name, namespace, "weft", (Listener("a", 80, "HTTP"),))
    for manifest in objects(gateway, ports_of(gateway, ()), "u", service_type="ClusterIP", revision=revision).values():
        manifest["metadata"] |= metadata
        await client.apply(manifest, manager="weft-gateways", force=True)


async def here(client, namespace, revision="default"):
    return tuple(each for each in await made(client, revision) if each.namespace == namespace)


async def test_each_revision_has_its_own_objects_and_unowned_objects_are_left_out(client, namespace):
    await make(client, namespace)
    await make(client, namespace, "new", "canary")
    await make(client, namespace, "theirs", ownerReferences=[])
    await make(client, namespace, "istios", labels={GATEWAY_NAME: "istios"})
    other = {"apiVersion": "networking.istio.io/v1", "kind": "Gateway", "name": "old", "uid": "u"}
    await make(client, namespace, "old", ownerReferences=[other])
    assert [str(each) for each in await here(client, namespace)] == [f"{namespace}/edge"]
    assert [str(each) for each in await here(client, namespace, "canary")] == [f"{namespace}/new"]
    assert [str(each) for each in await here(client, namespace, None)] == [f"{namespace}/edge", f"{namespace}/new"]


async def test_remove_deletes_these_objects_and_no_others(client, namespace):
    await make(client, namespace)
    await make(client, namespace, "new", "canary")
    gone = [who async for who in remove(client, await here(client, namespace))]
    assert ({each.kind for each in gone}, {each.name for each in gone}) == (ALL, {"edge-weft"})
    assert await here(client, namespace) == ()
    for resource in (DEPLOYMENTS, SERVICES, SERVICE_ACCOUNTS):
        names = {each["metadata"]["name"] for each in (await client.list(resource, dict, namespace=namespace)).items}
        assert names - {"default"} == {"new-weft"}


async def test_until_ended_waits_for_the_pods_and_returns_the_remaining_ones(client, namespace):
    await make(client, namespace)
    found = await here(client, namespace)
    for name, labels in (("edge-0", {GATEWAY_NAME: "edge"}), ("app-0", {})):
        manifest = pod(name, namespace, labels=labels)
        del manifest["status"]
        await client.create(PODS, manifest, msgspec.Raw, namespace=namespace)
    assert await until_ended(client, found, 0.1) == {namespace: 1}
    waiting = asyncio.create_task(until_ended(client, found, 30))
    await client.delete(PODS, "edge-0", namespace=namespace)
    assert await waiting == {}
    assert await pods(client, found) == {}
