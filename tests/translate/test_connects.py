from envoy.config.route.v3.route_components_pb2 import Route
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
    HttpFilter,
)

from translate.views import route, to, view
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.model.virtual_service import HttpMatch, MatchKind, Rewrite, StringMatch
from weft.translate.chains import http_to_workload
from weft.translate.connects import with_connects
from weft.translate.routes import routes, virtual_host


def _kinds(found):
    return [each.match.WhichOneof("path_specifier") for each in found]


def _exact(value):
    return StringMatch(MatchKind.EXACT, value)


def test_only_routes_for_every_path_also_match_connect():
    one = route(to(subset="a"), match=(HttpMatch(uri=_exact("/a")),))
    two = route(to(subset="b"), match=(HttpMatch(headers=(("x-b", _exact("1")),)), HttpMatch(method=_exact("GET"))))
    three = route(to(subset="c"), rewrite=Rewrite(uri="/else", authority="else"))
    found = with_connects(routes(view(one, two, three), 80))
    assert _kinds(found)[:3] == ["connect_matcher", "connect_matcher", "path"]
    assert [header.name for header in found[0].match.headers] == ["x-b"] and not found[1].match.headers
    for each in found[:2]:
        assert [config.upgrade_type for config in each.route.upgrade_configs] == ["CONNECT"]
        assert not each.route.prefix_rewrite and not each.route.host_rewrite_literal


def test_direct_responses_do_not_match_connect():
    answer = Route()
    answer.match.prefix = "/"
    answer.direct_response.status = 200
    assert with_connects([answer]) == [answer]


def test_connect_is_forwarded_only_at_a_listener_for_one_service():
    for protocol, expected in ((Protocol.UNDECLARED, True), (Protocol.HTTP, False)):
        seen = view(like={"protocol": protocol, "addresses": ("10.0.0.1",)})
        made = virtual_host(seen, seen.ports[0], Settings())
        (host,) = RouteConfiguration.FromString(made.fragment).virtual_hosts
        assert ("connect_matcher" in _kinds(host.routes)) is expected


def test_connect_is_not_forwarded_where_guards_check_requests():
    for guards, expected in (((), True), ((HttpFilter(name="a"),), False)):
        made = http_to_workload("x", "inbound|80||", "y", Settings(), guards)
        (host,) = HttpConnectionManager.FromString(made.typed_config.value).route_config.virtual_hosts
        assert ("connect_matcher" in _kinds(host.routes)) is expected
