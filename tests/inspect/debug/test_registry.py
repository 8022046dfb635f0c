from __future__ import annotations

import pytest

from control.proxy import changes
from model.builders import instance
from weft.control.plane import ControlPlane
from weft.inspect.debug.registry import endpoints, services
from weft.model.names import ObjectKey

TEXT = """
apiVersion: v1
kind: Service
metadata: {name: orders, namespace: shop, labels: {tier: back}}
spec:
  clusterIP: 10.96.0.7
  selector: {app: orders}
  ports: [{name: http, port: 80, targetPort: 8080}, {name: db, port: 3306, appProtocol: mysql}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: bank, namespace: shop}
spec:
  hosts: [bank.example.com]
  ports: [{number: 443, name: tls, protocol: TLS}]
  resolution: DNS
  exportTo: ["."]
"""


@pytest.fixture
async def mesh():
    plane = ControlPlane()
    plane.apply(changes(TEXT))
    pod = instance("orders-0", "orders")
    plane.put(ObjectKey("Pod", "shop", "orders-0"), (pod,))
    yield plane.mesh
    await plane.close()


async def test_services_have_istios_names(mesh):
    bank, orders = await services(mesh)
    assert orders["hostname"] == "orders.shop.svc.cluster.local"
    assert orders["Attributes"]["ServiceRegistry"] == "Kubernetes" and orders["Attributes"]["Labels"] == {
        "tier": "back"
    }
    assert orders["Attributes"]["LabelSelectors"] == {"app": "orders"}
    assert orders["ports"][0] == {"name": "http", "port": 80, "protocol": "HTTP"}
    assert orders["ports"][1]["protocol"] == "MySQL"
    assert orders["defaultAddress"] == "10.96.0.7" and orders["clusterVIPs"] == {
        "Addresses": {"Kubernetes": ["10.96.0.7"]}
    }
    assert (orders["Resolution"], orders["MeshExternal"]) == (0, False)
    assert (bank["hostname"], bank["Attributes"]["ServiceRegistry"]) == ("bank.example.com", "External")
    assert (bank["Resolution"], bank["MeshExternal"], bank["Attributes"]["ExportTo"]) == (1, True, {".": {}})


async def test_endpoints_are_by_host_and_namespace(mesh):
    found = (await endpoints(mesh))["orders.shop.svc.cluster.local"]["shop"]
    http = next(each for each in found["Shards"]["Kubernetes/Kubernetes"] if each["ServicePortName"] == "http")
    assert http["EndpointPort"] == 8080 and http["Addresses"] and http["WorkloadName"] == "orders-0"
    assert http["Namespace"] == "shop" and http["Labels"] == {"app": "orders"}
    (account,) = found["ServiceAccounts"]
    assert account.startswith("spiffe://cluster.local/ns/shop/sa/")


async def test_a_service_without_endpoints_has_an_empty_shard(mesh):
    found = (await endpoints(mesh))["bank.example.com"]["shop"]
    assert list(found["Shards"]) == ["External/Kubernetes"] and found["ServiceAccounts"] == {}
