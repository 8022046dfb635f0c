"""From BackendTLSPolicies to the ConfigMaps that are watched, with a real API server."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from ca.making import ca, p256
from cluster.kubernetes import unique
from control.proxy import changes
from eventually import eventually
from kube.following import QUICK
from weft.ca.certificates import certificate_pem
from weft.cluster.backend_authorities import BackendAuthorities, named
from weft.control.plane import ControlPlane
from weft.kube.resource import CONFIG_MAPS
from weft.model.names import ObjectKey
from weft.model.settings import Settings

POLICY = """
apiVersion: v1
kind: Service
metadata: {name: safe, namespace: shop}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: safe, namespace: shop}
spec:
  targetRefs: [{group: "", kind: Service, name: safe}]
  validation:
    hostname: safe.example.com
    caCertificateRefs: [{group: "", kind: ConfigMap, name: NAME}]
"""
GATEWAY = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  gatewayClassName: weft
  tls: {frontend: {default: {validation: {caCertificateRefs: [{group: "", kind: ConfigMap, name: callers}]}}}}
  listeners: [{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: s}]}}]
"""
ROOT = certificate_pem(ca("a root", p256()))


@pytest.fixture
def namespace(api_server):
    return api_server.make_namespace(unique("backend-authorities"))


def policy(namespace, name="roots"):
    return changes(POLICY.replace(": shop", f": {namespace}").replace("NAME", name))


def config_map(name, data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_policies_and_gateways_name_them():
    plane = ControlPlane()
    plane.apply(changes(f"{POLICY}---{GATEWAY}"))
    assert set(named(plane.mesh)) == {("shop", "NAME"), ("shop", "callers")}
    await plane.close()


@asynccontextmanager
async def following(client, own=("istio-system", "istio")):
    plane = ControlPlane()
    running = asyncio.create_task(BackendAuthorities(client, plane, own, QUICK).run())
    try:
        yield plane
    finally:
        running.cancel()
        await asyncio.wait([running])
        await plane.close()


def told(plane):
    return [
        (condition.type, condition.reason)
        for derived in plane.mesh.derived()
        for outcome in derived.policies
        for condition in outcome.conditions
    ]


WELL = [("Accepted", "Accepted"), ("ResolvedRefs", "ResolvedRefs")]
LACKING = [("Accepted", "NoValidCACertificate"), ("ResolvedRefs", "InvalidCACertificateRef")]


async def test_ca_certificates_of_a_named_config_map_are_trusted_while_it_exists(client, namespace):
    async with following(client) as plane:
        plane.apply(policy(namespace))
        assert told(plane) == LACKING
        await client.create(CONFIG_MAPS, config_map("roots", {"ca.crt": ROOT}), namespace=namespace)
        await eventually(lambda: told(plane) == WELL)
        patch = {
            **config_map("roots", {"ca.crt": "no certificate"}),
            "metadata": {"name": "roots", "namespace": namespace},
        }
        await client.apply(patch, manager="test", force=True)
        await eventually(lambda: told(plane) == LACKING)
        patch["data"] = {"ca.crt": ROOT}
        await client.apply(patch, manager="test", force=True)
        await eventually(lambda: told(plane) == WELL)
        await client.delete(CONFIG_MAPS, "roots", namespace=namespace)
        await eventually(lambda: told(plane) == LACKING)


async def test_a_config_map_that_no_policy_names_is_not_read(client, namespace):
    for name in ("roots", "other"):
        await client.create(CONFIG_MAPS, config_map(name, {"ca.crt": ROOT}), namespace=namespace)
    async with following(client) as plane:
        plane.apply(policy(namespace))
        assert named(plane.mesh) == ((namespace, "roots"),)
        await eventually(lambda: told(plane) == WELL)
        assert not plane.mesh.get(ObjectKey("ConfigMap", namespace, "other"))
        plane.apply(policy(namespace, "other"))
        await eventually(lambda: plane.mesh.get(ObjectKey("ConfigMap", namespace, "other")))
        await eventually(lambda: not plane.mesh.get(ObjectKey("ConfigMap", namespace, "roots")))


async def test_a_config_map_that_a_policy_names_cannot_change_mesh_settings(client, namespace):
    settings = {"mesh": "outboundTrafficPolicy: {mode: REGISTRY_ONLY}", "ca.crt": ROOT}
    await client.create(CONFIG_MAPS, config_map("istio-evil", settings), namespace=namespace)
    async with following(client) as plane:
        plane.apply(policy(namespace, "istio-evil"))
        await eventually(lambda: told(plane) == WELL)
        assert plane.mesh.settings == Settings()


async def test_the_meshs_own_settings_stay_though_a_policy_names_them(client, namespace):
    await client.create(CONFIG_MAPS, config_map("istio", {"ca.crt": ROOT}), namespace=namespace)
    await client.create(CONFIG_MAPS, config_map("roots", {"ca.crt": ROOT}), namespace=namespace)
    own = ObjectKey("ConfigMap", namespace, "istio")
    chosen = Settings(trust_domain="example.org")
    async with following(client, own=(namespace, "istio")) as plane:
        plane.put(own, (chosen,))
        both = "NAME}, {group: '', kind: ConfigMap, name: roots}"
        plane.apply(changes(POLICY.replace(": shop", f": {namespace}").replace("NAME}", both.replace("NAME", "istio"))))
        await eventually(lambda: plane.mesh.get(ObjectKey("ConfigMap", namespace, "roots")))
        assert plane.mesh.get(own) == (chosen,)
