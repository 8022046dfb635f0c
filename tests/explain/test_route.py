import pytest
from envoy.config.route.v3.route_components_pb2 import RouteMatch
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from google.protobuf.json_format import ParseDict

from weft.explain.decision import Unsure
from weft.explain.request import RequestHeaders
from weft.explain.route import first_match, is_grpc, takes, virtual_host, without_port
from weft.explain.world import EnvoyResources

HOSTS = {
    "exact": ["orders", "[::1]"],
    "long": ["*.shop.example"],
    "short": ["*.example"],
    "prefix": ["orders.*"],
    "rest": ["*"],
}


def _configuration(hosts=HOSTS, **more):
    listed = [{"name": name, "domains": domains} for name, domains in hosts.items()]
    return ParseDict({"virtual_hosts": listed, **more}, RouteConfiguration())


@pytest.mark.parametrize(
    ("authority", "name"),
    [
        ("orders", "exact"),
        ("ORDERS:8080", "exact"),
        ("[::1]:80", "exact"),
        ("a.shop.example", "long"),
        ("shop.example", "short"),
        ("orders.org", "prefix"),
        (".example", "rest"),
        ("other", "rest"),
    ],
)
def test_a_host_is_found_exactly_then_by_the_longest_wildcard(authority, name):
    configuration = _configuration(ignore_port_in_host_matching=True)
    assert virtual_host(EnvoyResources(), configuration, authority).name == name


def test_ports_count_unless_they_are_ignored():
    assert virtual_host(EnvoyResources(), _configuration(), "orders:80").name == "rest"
    assert virtual_host(EnvoyResources(), _configuration({"only": ["orders"]}), "orders:80") is None


def _takes(match, path, **headers):
    target = path
    given = RequestHeaders([(":path", target), *headers.items()])
    return takes(ParseDict(match, RouteMatch()), given, target, target.partition("?")[0])


@pytest.mark.parametrize(
    ("match", "path", "expected"),
    [
        ({"path": "/a"}, "/a?x", True),
        ({"path": "/a"}, "/A", False),
        ({"path": "/a", "case_sensitive": False}, "/A", True),
        ({"prefix": "/a"}, "/ab", True),
        ({"path_separated_prefix": "/a"}, "/ab", False),
        ({"path_separated_prefix": "/a"}, "/a/b", True),
        ({"safe_regex": {"regex": "/a+"}}, "/aa?b", True),
        ({"prefix": "/", "query_parameters": [{"name": "x", "present_match": True}]}, "/?x=1", True),
        ({"prefix": "/", "query_parameters": [{"name": "x", "present_match": True}]}, "/", False),
        ({"prefix": "/", "grpc": {}}, "/", False),
    ],
)
def test_routes_take_paths_and_parameters(match, path, expected):
    assert _takes(match, path) is expected


def test_a_route_with_a_runtime_fraction_is_unknown():
    with pytest.raises(Unsure, match="runtime_fraction"):
        _takes({"prefix": "/", "runtime_fraction": {"default_value": {"numerator": 5}}}, "/")


def test_the_first_matching_route_is_used():
    routes = [{"name": "a", "match": {"prefix": "/a"}}, {"name": "b", "match": {"prefix": "/"}}]
    (host,) = ParseDict({"virtual_hosts": [{"name": "h", "routes": routes}]}, RouteConfiguration()).virtual_hosts
    assert first_match(host, RequestHeaders([(":path", "/ab")])).name == "a"
    assert first_match(host, RequestHeaders([(":path", "/b")])).name == "b"
    assert first_match(host, RequestHeaders([(":path", "*")])) is None


def test_connect_matches_only_connect_routes():
    routes = [{"name": "a", "match": {"prefix": "/"}}, {"name": "b", "match": {"connect_matcher": {}}}]
    (host,) = ParseDict({"virtual_hosts": [{"name": "h", "routes": routes}]}, RouteConfiguration()).virtual_hosts
    assert first_match(host, RequestHeaders([(":method", "CONNECT"), (":path", "/")])).name == "b"
    assert first_match(host, RequestHeaders([(":method", "GET"), (":path", "/")])).name == "a"


def test_grpc_is_detected_by_content_type():
    assert is_grpc(RequestHeaders([("content-type", "application/grpc+proto")]))
    assert not is_grpc(RequestHeaders([("content-type", "application/grpc-web")])) and not is_grpc(RequestHeaders())


def test_without_port_keeps_ipv6_addresses():
    assert [without_port(each) for each in ("a:80", "a", "[::1]", "[::1]:80")] == ["a", "a", "[::1]", "[::1]"]
