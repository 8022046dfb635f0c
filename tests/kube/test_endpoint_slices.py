import msgspec
import pytest

from kube.manifests import endpoint, endpoint_slice
from weft.kube.endpoint_slices import slice_of
from weft.kube.objects import Slice
from weft.model.endpoint_slice import SliceEndpoint


def read(*endpoints, **more):
    return slice_of(msgspec.convert(endpoint_slice("orders-x", "shop", "orders", *endpoints, **more), Slice))


def test_a_slice_has_its_service_and_the_addresses_and_ports_of_its_endpoints():
    found = read(endpoint("10.0.0.1", "orders-0", "shop"), ports=[("http", 8080), (None, 90)])
    assert (found.name, found.namespace, found.service, found.managed) == ("orders-x", "shop", "orders", True)
    assert found.ports == (("http", 8080), ("", 90))
    assert found.endpoints == (SliceEndpoint("10.0.0.1", "orders-0"),)


@pytest.mark.parametrize(
    ("conditions", "ready", "draining"),
    [
        ({}, True, False),
        ({"ready": None}, True, False),
        ({"ready": True, "serving": True, "terminating": False}, True, False),
        ({"ready": False}, False, False),
        ({"ready": False, "serving": True, "terminating": True}, False, True),
        ({"ready": False, "serving": False, "terminating": True}, False, False),
        ({"ready": False, "serving": True}, False, False),
        ({"ready": True, "serving": True, "terminating": True}, True, True),
    ],
)
def test_unset_conditions_have_the_defaults_of_kubernetes(conditions, ready, draining):
    (found,) = read({"addresses": ["10.0.0.1"], "conditions": conditions}).endpoints
    assert (found.ready, found.draining) == (ready, draining)


def test_an_endpoint_without_conditions_is_ready():
    assert read({"addresses": ["10.0.0.1"]}).endpoints[0].ready


def test_a_target_ref_counts_only_for_a_pod_of_the_same_namespace():
    other = {"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": "orders-0", "namespace": "other"}}
    node = {"addresses": ["10.0.0.2"], "targetRef": {"kind": "Node", "name": "orders-0"}}
    near = {"addresses": ["10.0.0.3"], "targetRef": {"kind": "Pod", "name": "orders-0"}}
    assert [each.pod for each in read(other, node, near).endpoints] == ["", "", "orders-0"]


def test_udp_ports_are_left_out():
    assert read(ports=[("dns", 53, "UDP"), ("dns-tcp", 53)]).ports == (("dns-tcp", 53),)


def test_a_slice_of_host_names_or_without_a_service_is_skipped():
    assert read(family="FQDN") is None
    written = endpoint_slice("orders-x", "shop", "orders")
    written["metadata"]["labels"] = {}
    assert slice_of(msgspec.convert(written, Slice)) is None
    written["metadata"]["labels"] = None
    assert slice_of(msgspec.convert(written, Slice)) is None


def test_null_endpoints_and_ports_are_empty():
    written = endpoint_slice("orders-x", "shop", "orders") | {"endpoints": None, "ports": None}
    found = slice_of(msgspec.convert(written, Slice))
    assert (found.endpoints, found.ports) == ((), ())
