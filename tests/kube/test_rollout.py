"""Whether something runs is told by what its controller and kubelet write; here the test writes that itself, into a
real API server that has neither."""

import asyncio

import pytest

from eventually import eventually
from weft.kube.client import Client
from weft.kube.config import load
from weft.kube.resource import DAEMON_SETS, DEPLOYMENTS, NAMESPACES, PODS, STATEFUL_SETS
from weft.kube.rollout import follow, restart, rollout

LABELS = {"app": "web"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "app", "image": "x"}]}}


@pytest.fixture
async def client(own_api_server):
    async with Client(load(own_api_server.kubeconfig)) as client:
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "rollout-"}}
        made = await client.create(NAMESPACES, manifest)
        client.place = made["metadata"]["name"]
        own_api_server.make_default_account(client.place)
        yield client
        await client.delete(NAMESPACES, client.place)


async def make(client, resource, **spec):
    body = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": LABELS}, "template": TEMPLATE, **spec}}
    await client.create(resource, body, namespace=client.place)


async def write_status(client, resource, **status):
    found = await client.get(resource, "web", namespace=client.place)
    status = {"observedGeneration": found["metadata"]["generation"], **status}
    await client.patch(resource, "web", {"status": status}, namespace=client.place, subresource="status")


async def state(client, resource):
    return await rollout(client, resource, client.place, "web")


async def test_a_deployment_is_done_when_all_its_new_pods_are_available(client):
    await make(client, DEPLOYMENTS, replicas=2)
    assert not (await state(client, DEPLOYMENTS)).done
    await write_status(client, DEPLOYMENTS, replicas=3, updatedReplicas=2, readyReplicas=3, availableReplicas=3)
    assert not (await state(client, DEPLOYMENTS)).done  # an old one is still there
    await write_status(client, DEPLOYMENTS, replicas=2, updatedReplicas=2, readyReplicas=2, availableReplicas=2)
    assert (await state(client, DEPLOYMENTS)).done


async def test_a_rollout_of_an_older_generation_is_not_done(client):
    await make(client, DEPLOYMENTS, replicas=1)
    await write_status(client, DEPLOYMENTS, replicas=1, updatedReplicas=1, readyReplicas=1, availableReplicas=1)
    assert (await state(client, DEPLOYMENTS)).done
    await restart(client, DEPLOYMENTS, client.place, "web")
    assert not (await state(client, DEPLOYMENTS)).done


async def test_a_daemon_set_is_done_when_every_machine_has_its_new_pod(client):
    await make(client, DAEMON_SETS)
    numbers = {"desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberReady": 2, "numberMisscheduled": 0}
    await write_status(client, DAEMON_SETS, **numbers, updatedNumberScheduled=1, numberAvailable=2)
    found = await state(client, DAEMON_SETS)
    assert (found.done, found.ready, found.wanted) == (False, 1, 2)
    await write_status(client, DAEMON_SETS, **numbers, updatedNumberScheduled=2, numberAvailable=2)
    assert (await state(client, DAEMON_SETS)).done


async def test_a_stateful_set_is_done_when_all_are_ready(client):
    await make(client, STATEFUL_SETS, replicas=1, serviceName="web")
    await write_status(client, STATEFUL_SETS, replicas=1, updatedReplicas=1, readyReplicas=0)
    assert not (await state(client, STATEFUL_SETS)).done
    await write_status(client, STATEFUL_SETS, replicas=1, updatedReplicas=1, readyReplicas=1)
    assert (await state(client, STATEFUL_SETS)).done


async def pod_says(client, status):
    body = {"metadata": {"name": "web-1", "labels": LABELS}, "spec": TEMPLATE["spec"]}
    await client.create(PODS, body, namespace=client.place)
    await client.patch(PODS, "web-1", {"status": status}, namespace=client.place, subresource="status")


def waiting(reason, message=""):
    container = {"name": "app", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    return {"containerStatuses": [{**container, "state": {"waiting": {"reason": reason, "message": message}}}]}


async def test_the_trouble_of_a_pod_that_does_not_start_is_kubelets_message(client):
    await make(client, DEPLOYMENTS, replicas=1)
    await write_status(client, DEPLOYMENTS, replicas=1)
    await pod_says(client, waiting("ErrImagePull", "not found"))
    found = await state(client, DEPLOYMENTS)
    assert found.trouble == "web-1: app ErrImagePull (not found)"
    assert str(found) == "0 of 1 ready: web-1: app ErrImagePull (not found)"


async def test_an_unschedulable_pod_is_trouble_and_a_new_pod_is_not(client):
    await make(client, DEPLOYMENTS, replicas=1)
    await write_status(client, DEPLOYMENTS, replicas=1)
    await pod_says(client, waiting("ContainerCreating"))
    assert not (await state(client, DEPLOYMENTS)).trouble
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
    await client.patch(
        PODS, "web-1", {"status": {"conditions": [unscheduled]}}, namespace=client.place, subresource="status"
    )
    assert "0/1 nodes" in (await state(client, DEPLOYMENTS)).trouble


async def test_follow_ends_when_the_rollout_is_done(client):
    await make(client, DEPLOYMENTS, replicas=1)
    seen = []

    async def watch():
        async for found in follow(client, DEPLOYMENTS, client.place, "web"):
            seen.append(found.done)

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        tasks.create_task(watch())
        await eventually(lambda: seen)
        await write_status(client, DEPLOYMENTS, replicas=1, updatedReplicas=1, readyReplicas=1, availableReplicas=1)
    assert seen == [False, True]
