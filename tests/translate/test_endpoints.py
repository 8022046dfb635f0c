from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment

from model.builders import service
from translate.views import HOST
from weft.model.destination_rule import ClientTls, ClientTlsMode, DestinationRule, Subset, TrafficPolicy
from weft.model.endpoint import Endpoint
from weft.model.group import ProxyKind
from weft.model.names import labels_of
from weft.model.service import Protocol, Resolution
from weft.translate.endpoints import assignments

V1, V2 = labels_of({"version": "v1"}), labels_of({"version": "v2"})
RULE = DestinationRule("r", "shop", HOST, subsets=(Subset("v1", V1), Subset("v2", V2)))


def _read(built):
    return ClusterLoadAssignment.FromString(built.body)


def _addresses(assignment):
    return [e.endpoint.address.socket_address.address for group in assignment.endpoints for e in group.lb_endpoints]


def test_a_subset_has_the_endpoints_with_its_labels():
    orders = service("orders")
    found = (Endpoint("10.0.0.1", 8080, labels=V1), Endpoint("10.0.0.2", 8080, labels=V2))
    plain, first, second = map(_read, assignments(orders, orders.ports[0], RULE, found))
    assert _addresses(plain) == ["10.0.0.1", "10.0.0.2"]
    assert (_addresses(first), _addresses(second)) == (["10.0.0.1"], ["10.0.0.2"])
    assert first.cluster_name == f"outbound|80|v1|{HOST}"


def test_an_endpoint_of_two_families_is_one_endpoint():
    orders = service("orders")
    (built,) = assignments(orders, orders.ports[0], None, (Endpoint("10.0.0.1", 8080, ("fd00::1",)),))
    (entry,) = _read(built).endpoints[0].lb_endpoints
    assert entry.endpoint.additional_addresses[0].address.socket_address.address == "fd00::1"


def test_endpoints_are_grouped_by_locality_with_their_weights():
    orders = service("orders")
    found = (
        Endpoint("10.0.0.1", 80, locality="eu/a/rack", weight=3),
        Endpoint("10.0.0.2", 80, locality="us"),
        Endpoint("10.0.0.3", 80, locality="eu/a/rack"),
    )
    (built,) = assignments(orders, orders.ports[0], None, found)
    europe, america = _read(built).endpoints
    assert (europe.locality.region, europe.locality.zone, europe.locality.sub_zone) == ("eu", "a", "rack")
    assert (europe.load_balancing_weight.value, america.load_balancing_weight.value) == (4, 1)


def test_a_service_without_endpoints_has_an_empty_assignment():
    orders = service("orders")
    (built,) = assignments(orders, orders.ports[0], None, ())
    assert _read(built).cluster_name and not _read(built).endpoints


def test_only_grpc_clients_get_the_endpoints_of_services_called_by_address():
    orders = service("orders", headless=True)
    found = (orders, orders.ports[0], None, (Endpoint("10.0.0.1", 8080),))
    assert assignments(*found) == ()
    assert _addresses(_read(assignments(*found, kind=ProxyKind.GRPC)[0])) == ["10.0.0.1"]


def test_a_gateway_gets_the_endpoints_of_a_headless_service():
    orders = service("orders", headless=True)
    (built,) = assignments(orders, orders.ports[0], None, (Endpoint("10.0.0.1", 8080),), kind=ProxyKind.GATEWAY)
    assert _addresses(_read(built)) == ["10.0.0.1"]


def test_services_resolved_by_dns_have_no_assignment():
    outside = service("api", resolution=Resolution.DNS)
    assert assignments(outside, outside.ports[0], None, (Endpoint("api.example.com", 80),)) == ()


def test_only_endpoints_that_accept_mutual_tls_are_marked_for_it():
    orders = service("orders")
    (built,) = assignments(
        orders, orders.ports[0], None, (Endpoint("10.0.0.1", 80, tls=True), Endpoint("10.0.0.2", 80, meshed=True))
    )
    first, second = _read(built).endpoints[0].lb_endpoints
    assert dict(first.metadata.filter_metadata["envoy.transport_socket_match"]) == {"tlsMode": "istio"}
    assert not second.HasField("metadata")


def test_a_closed_rule_has_no_assignment():
    orders = service("orders")
    closed = DestinationRule("r", "shop", HOST, TrafficPolicy(tls=ClientTls(ClientTlsMode.CLOSED)))
    for kind in (ProxyKind.SIDECAR, ProxyKind.GRPC):
        assert assignments(orders, orders.ports[0], closed, (Endpoint("10.0.0.1", 80),), kind) == ()


def test_a_udp_port_does_not_replace_the_assignment_of_the_tcp_port_with_its_number():
    dns = service("dns", port=53, protocol=Protocol.UDP)
    assert assignments(dns, dns.ports[0], None, (Endpoint("10.0.0.1", 53),)) == ()
