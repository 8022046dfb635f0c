"""A webhook that nobody answers is found, on a real API server."""

import pytest

from weft.kube.client import Client
from weft.kube.config import load
from weft.kube.resource import CONFIG_MAPS, ENDPOINT_SLICES, MUTATING_WEBHOOKS
from weft.kube.webhooks import unanswered
from weft.model.proxy import ROOT_CONFIG_MAP

LABELS = "test-webhooks=yes"
SLICE = {
    "apiVersion": "discovery.k8s.io/v1",
    "kind": "EndpointSlice",
    "metadata": {"name": "answering-1", "labels": {"kubernetes.io/service-name": "answering"}},
    "addressType": "IPv4",
}


def webhook(ca_bundle=""):
    service = {"name": "answering", "namespace": "default", "path": "/"}
    client_config = {"service": service, **({"caBundle": ca_bundle} if ca_bundle else {})}
    return {
        "metadata": {"name": "test-webhooks", "labels": {"test-webhooks": "yes"}},
        "webhooks": [
            {
                "name": "a.example.org",
                "clientConfig": client_config,
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Ignore",
                "namespaceSelector": {"matchLabels": {"nobody": "has-this"}},
            }
        ],
    }


@pytest.fixture
async def client(own_api_server):
    async with Client(load(own_api_server.kubeconfig)) as client:
        yield client
        await client.delete(MUTATING_WEBHOOKS, "test-webhooks")
        await client.delete(ENDPOINT_SLICES, "answering-1", namespace="default")


async def endpoint(client, *, ready):
    body = {**SLICE, "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}]}
    await client.create(ENDPOINT_SLICES, body, namespace="default")


def bundle(server):
    import base64

    return base64.b64encode(server.ca.read_bytes()).decode()


async def test_a_webhook_without_a_ca_bundle_is_a_problem(client):
    await client.create(MUTATING_WEBHOOKS, webhook())
    (problem,) = await unanswered(client, LABELS)
    assert "caBundle" in problem.what
    assert problem.where.object == "MutatingWebhookConfiguration test-webhooks"


@pytest.mark.parametrize("ready", [None, False])
async def test_a_webhook_whose_service_has_no_ready_endpoint_is_a_problem(client, own_api_server, ready):
    await client.create(MUTATING_WEBHOOKS, webhook(bundle(own_api_server)))
    if ready is not None:
        await endpoint(client, ready=ready)
    (problem,) = await unanswered(client, LABELS)
    assert "default/answering" in problem.what


async def test_a_webhook_with_a_ca_bundle_and_a_ready_endpoint_is_no_problem(client, own_api_server):
    await client.create(MUTATING_WEBHOOKS, webhook(bundle(own_api_server)))
    await endpoint(client, ready=True)
    assert await unanswered(client, LABELS) == []


async def test_a_webhook_with_the_root_of_another_ca_is_a_problem(client, own_api_server):
    published = {
        "metadata": {"name": ROOT_CONFIG_MAP},
        "data": {"root-cert.pem": own_api_server.certificate.read_text()},
    }
    await client.create(CONFIG_MAPS, published, namespace="default")
    try:
        await client.create(MUTATING_WEBHOOKS, webhook(bundle(own_api_server)))
        await endpoint(client, ready=True)
        (problem,) = await unanswered(client, LABELS)
        assert problem.what.startswith("the caBundle is of another CA than the control plane's")
    finally:
        await client.delete(CONFIG_MAPS, ROOT_CONFIG_MAP, namespace="default")
    assert await unanswered(client, LABELS) == []
