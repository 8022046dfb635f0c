from itertools import permutations

import pytest

from weft.mesh.mesh import Mesh
from weft.mesh.service_entries import merged
from weft.model.names import ObjectKey, Origin, labels_of
from weft.model.scope import Scope
from weft.model.service import Resolution, Service, ServicePort, StaticEndpoint

API = "api.example.com"
HTTP, TLS = ServicePort(80, "http"), ServicePort(443, "tls")
SHOP = Scope("shop")


def entry(name, *ports, address="", namespace="shop", **more):
    key = ObjectKey("ServiceEntry", namespace, name)
    endpoints = (StaticEndpoint(address),) if address else ()
    return Service(API, name, namespace, ports, origin=Origin(key), static_endpoints=endpoints, **more)


def put(mesh, service):
    return mesh.apply(service.origin.key, (service,))


def endpoints(mesh):
    service = mesh.service(API, SHOP)
    return {port.number: [each.address for each in mesh.endpoints(service, port)] for port in service.ports}


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_ports_and_endpoints_of_all_entries_of_a_namespace_are_joined(order):
    parts = (
        entry("a", HTTP, address="192.0.2.1", created="2026-01"),
        entry("b", TLS, address="192.0.2.2", created="2026-02"),
        entry("c", HTTP, TLS, address="192.0.2.3", created="2026-03"),
    )
    mesh = Mesh()
    for place in order:
        assert put(mesh, parts[place]).hosts == {API}
    service = mesh.service(API, SHOP)
    assert (service.name, [origin.key.name for origin in service.origins]) == ("a", ["a", "b", "c"])
    assert endpoints(mesh) == {80: ["192.0.2.1", "192.0.2.3"], 443: ["192.0.2.2", "192.0.2.3"]}
    mesh.apply(parts[0].origin.key, ())
    assert mesh.service(API, SHOP).name == "b"
    assert endpoints(mesh) == {443: ["192.0.2.2", "192.0.2.3"], 80: ["192.0.2.3"]}
    for part in parts[1:]:
        mesh.apply(part.origin.key, ())
    assert mesh.service(API, SHOP) is None


def test_the_older_entry_declares_a_port_that_both_have():
    (service,) = merged([entry("a", ServicePort(80, "web"), created="2"), entry("b", HTTP, created="1")])
    assert service.ports == (HTTP,)


@pytest.mark.parametrize(
    "different",
    (
        {"resolution": Resolution.DNS},
        {"selector": labels_of({"app": "api"})},
        {"export_to": (".",)},
    ),
)
def test_entries_that_differ_in_what_decides_are_not_merged(different):
    one, other = entry("a", HTTP), entry("b", TLS, **different)
    assert merged([other, one]) == [one, other]


def test_entries_of_two_namespaces_are_not_merged():
    mesh = Mesh()
    put(mesh, entry("a", HTTP))
    put(mesh, entry("a", TLS, namespace="far"))
    assert [port.number for port in mesh.service(API, SHOP).ports] == [80]
    assert [port.number for port in mesh.service(API, Scope("far")).ports] == [443]
