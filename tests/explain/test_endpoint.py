from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from google.protobuf.json_format import ParseDict

from weft.explain.endpoint import places


def _host(number, weight=1, health="UNKNOWN", **more):
    address = {"socket_address": {"address": f"10.0.0.{number}", "port_value": 80}}
    return {"endpoint": {"address": address}, "load_balancing_weight": weight, "health_status": health, **more}


def _shares(*localities, cluster=None):
    assignment = ParseDict({"cluster_name": "c", "endpoints": list(localities)}, ClusterLoadAssignment())
    found = places(ParseDict(cluster or {}, Cluster()), assignment)
    return {place.address[-1]: round(place.share, 3) for place in found}


def test_requests_are_shared_by_weight():
    assert _shares({"lb_endpoints": [_host(1, 3), _host(2, 1)]}) == {"1": 0.75, "2": 0.25}
    assert _shares() == {}


def test_unhealthy_endpoints_get_no_requests_above_the_panic_threshold():
    assert _shares({"lb_endpoints": [_host(1), _host(2, health="UNHEALTHY")]}) == {"1": 1.0}


def test_all_endpoints_get_requests_in_panic_mode_unless_it_is_off():
    sick = {"lb_endpoints": [_host(1), _host(2, health="UNHEALTHY"), _host(3, health="DRAINING")]}
    assert _shares(sick) == {"1": 0.333, "2": 0.333, "3": 0.333}
    off = {"common_lb_config": {"healthy_panic_threshold": {"value": 0}}}
    assert _shares(sick, cluster=off) == {"1": 1.0}


def test_load_spills_over_to_the_next_priority():
    first = {"lb_endpoints": [_host(1), _host(2, health="UNHEALTHY")]}
    second = {"priority": 1, "lb_endpoints": [_host(3)]}
    assert _shares(first, second) == {"1": 0.7, "3": 0.3}
    assert _shares({"lb_endpoints": [_host(1)]}, second) == {"1": 1.0}


def test_locality_weights_apply_if_the_cluster_uses_them():
    near = {"load_balancing_weight": 3, "lb_endpoints": [_host(1), _host(2)]}
    far = {"load_balancing_weight": 1, "lb_endpoints": [_host(3)]}
    weighted = {"common_lb_config": {"locality_weighted_lb_config": {}}}
    assert _shares(near, far, cluster=weighted) == {"1": 0.375, "2": 0.375, "3": 0.25}
    assert _shares({"lb_endpoints": [_host(1)]}, cluster=weighted) == {}  # a locality without a weight gets nothing
    assert _shares(near, far) == {"1": 0.333, "2": 0.333, "3": 0.333}


def test_endpoint_metadata_and_unix_sockets_are_read():
    marked = _host(1, metadata={"filter_metadata": {"envoy.transport_socket_match": {"tlsMode": "istio"}}})
    pipe = {"endpoint": {"address": {"pipe": {"path": "/run/app"}}}}
    assignment = ParseDict({"endpoints": [{"lb_endpoints": [marked, pipe]}]}, ClusterLoadAssignment())
    one, two = places(Cluster(), assignment)
    assert one.marks == (("tlsMode", "istio"),) and (two.address, two.port) == ("unix:///run/app", 0)
