"""From Gateways and pods to the Secrets that are watched, with a real API server."""

import asyncio
import base64

import msgspec
import pytest

from authority import Authority
from control.proxy import changes, until
from kube.following import QUICK, connected
from kube.manifests import pod
from weft.control.gateway_credentials import GatewayCredentials, named
from weft.control.plane import ControlPlane
from weft.kube.objects import Pod
from weft.kube.pods import Pods, record_of
from weft.kube.resource import SECRETS
from weft.model.gateway import CredentialRef
from weft.model.group import Group, ProxyKind
from weft.model.names import labels_of

GATEWAY = """
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: public, namespace: shop}
spec:
  selector: {istio: ingress}
  servers:
    - port: {number: 443, name: https, protocol: HTTPS}
      hosts: ["shop.example.com"]
      tls: {mode: SIMPLE, credentialName: shop-cert}
"""


@pytest.fixture
async def client(api_server):
    async with connected(api_server) as client:
        yield client


@pytest.fixture
def namespace(api_server):
    return api_server.make_namespace("gateway-credentials")


def edge(namespace):
    annotations = {"sidecar.istio.io/status": "{}", "inject.istio.io/templates": "gateway"}
    manifest = pod("edge-0", namespace, "10.0.0.1", labels={"istio": "ingress"}, annotations=annotations)
    manifest["metadata"]["uid"] = "u1"
    return record_of(msgspec.convert(manifest, Pod))


async def test_secrets_are_those_of_the_gateways_namespace_and_no_others():
    plane = ControlPlane()
    plane.apply(changes(GATEWAY))
    ingress = Group(ProxyKind.GATEWAY, "edge", labels_of({"istio": "ingress"}))
    assert ("edge", "shop-cert") in named(plane.mesh, [ingress])
    assert {namespace for namespace, _ in named(plane.mesh, [ingress])} == {"edge"}
    assert named(plane.mesh, [Group(ProxyKind.GATEWAY, "edge", labels_of({"istio": "other"}))]) == frozenset()


async def test_a_secret_is_read_as_long_as_a_pod_serves_a_gateway_that_names_it(client, namespace):
    certificate = Authority().issue("shop.example.com")
    held = {"tls.crt": certificate.certificate, "tls.key": certificate.key}
    data = {
        name: base64.b64encode(each if isinstance(each, bytes) else each.encode()).decode()
        for name, each in held.items()
    }
    for name in ("shop-cert", "another"):
        manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
        await client.create(SECRETS, manifest, namespace=namespace)
    plane, pods = ControlPlane(), Pods()
    running = asyncio.create_task(GatewayCredentials(client, plane, pods, QUICK).run())
    try:
        plane.apply(changes(GATEWAY))
        pods.put(edge(namespace))
        reference = CredentialRef("shop-cert", namespace)
        await until(lambda: plane.mesh.credential(reference) is not None)
        assert plane.mesh.credential(CredentialRef("another", namespace)) is None
        pods.discard(namespace, "edge-0")
        await until(lambda: plane.mesh.credential(reference) is None)
    finally:
        running.cancel()
        await asyncio.wait({running})
        await plane.close()
