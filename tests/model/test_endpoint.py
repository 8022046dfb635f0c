import pytest

from model.builders import instance, service
from weft.model.endpoint import Endpoint, endpoint_of, written_endpoint
from weft.model.names import labels_of
from weft.model.service import Service, ServicePort, StaticEndpoint

PORT = service("orders").ports[0]
ENTRY = Service("a.b", "a", "shop", (PORT,))


def test_an_endpoint_has_the_instances_port_and_addresses():
    pod = instance("orders-0", "orders", meshed=True, service_account="orders", locality="r/z")
    assert endpoint_of(pod, PORT, None) == Endpoint(
        "10.244.0.1",
        8080,
        labels=pod.labels,
        locality="r/z",
        meshed=True,
        tls=True,
        service_account="orders",
        instance="shop/orders-0",
    )


def test_an_instance_without_the_port_is_no_endpoint():
    named = ServicePort(80, target="web")
    assert endpoint_of(instance("orders-0", "orders"), named, None) is None


@pytest.mark.parametrize(
    ("more", "tls"),
    [
        ({}, False),
        ({"service_account": "vm"}, True),
        ({"labels": labels_of({"security.istio.io/tlsMode": "istio"})}, True),
        ({"labels": labels_of({"security.istio.io/tlsMode": "disabled"}), "service_account": "vm"}, False),
    ],
)
def test_a_service_entry_endpoint_has_tls_by_its_label_or_its_account(more, tls):
    written = StaticEndpoint("10.0.0.1", **more)
    assert written_endpoint(ENTRY, written, PORT, None).tls is tls
    assert not written_endpoint(ENTRY, written, PORT, lambda labels, number: number == 8080).tls
    outside = Service("a.b", "a", "shop", (PORT,), external=True)
    assert not written_endpoint(outside, written, PORT, None).tls


def test_a_service_entry_endpoints_port_overrides_by_the_service_ports_name():
    assert written_endpoint(ENTRY, StaticEndpoint("10.0.0.1", (("http", 81),)), PORT, None).port == 81
    assert written_endpoint(ENTRY, StaticEndpoint("10.0.0.1"), PORT, None).port == 8080
