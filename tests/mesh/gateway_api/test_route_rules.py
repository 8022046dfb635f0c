from itertools import permutations

import pytest

from weft.mesh.gateway_api.route_rules import precedence, resolved
from weft.model.gateway_api import (
    GROUP,
    Backend,
    GrantSource,
    GrantTarget,
    ReferenceGrant,
    RouteKind,
    RouteRule,
    StandardRoute,
)
from weft.model.service import Protocol, Service, ServicePort
from weft.model.virtual_service import HttpMatch, HttpRoute, MatchKind, Redirect, StringMatch

PORTS = (ServicePort(80, "http", Protocol.HTTP), ServicePort(53, "dns", Protocol.UDP))
SERVICES = {
    ("web.shop", "shop"): Service("web.shop", "web", "shop", PORTS),
    ("db.bank", "bank"): Service("db.bank", "db", "bank", PORTS),
}


def services(host, namespace):
    return SERVICES.get((host, namespace))


def backend(name="web", namespace="shop", port=80, **more):
    return Backend(namespace, name, f"{name}.{namespace}", port, **more)


def route(*backends, kind=RouteKind.HTTP, mirrors=(), **more):
    matches = (HttpMatch(uri=StringMatch(MatchKind.PATH_PREFIX, "/")),)
    return StandardRoute(kind, "x", "shop", rules=(RouteRule(HttpRoute(**more), matches, backends, mirrors),))


def http(found):
    (_, made), *_ = found.http
    return made


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (backend("nobody"), "BackendNotFound"),
        (backend(port=81), "BackendNotFound"),
        (backend(port=53), "BackendNotFound"),
        (backend("db", "bank"), "RefNotPermitted"),
        (backend(kind="Pool", group="a.b"), "InvalidKind"),
    ],
)
def test_the_share_of_an_unusable_backend_gets_500(wrong, reason):
    alone = resolved(route(wrong), services, ())
    assert (alone.told.reason, http(alone).direct_response.status, http(alone).route) == (reason, 500, ())
    beside = http(resolved(route(backend(weight=3), wrong), services, ()))
    assert (len(beside.route), beside.failing, beside.direct_response) == (1, 1, None)


def test_the_share_of_connections_of_an_unusable_backend_is_closed():
    def streams(*backends):
        made = StandardRoute(RouteKind.TCP, "a", "shop", rules=(RouteRule(backends=backends),))
        (found,) = resolved(made, services, ()).streams
        return [each.weight for each in found.route], found.failing

    gone = backend(name="gone", weight=4)
    assert streams(backend(weight=3)) == ([3], 0)
    assert streams(backend(weight=3), gone) == ([3], 4)
    assert streams(gone) == ([], 4)
    assert streams(backend(weight=0)) == ([], 1)


def test_backends_of_weight_zero_give_500_and_no_flaw():
    found = resolved(route(backend(weight=0)), services, ())
    assert (http(found).direct_response.status, found.told.holds) == (500, True)
    assert http(resolved(route(), services, ())).direct_response.status == 500


def test_a_reference_grant_allows_other_namespaces_and_none_is_needed_between_workloads():
    grant = ReferenceGrant("x", "bank", (GrantSource(GROUP, "HTTPRoute", "shop"),), (GrantTarget("", "Service"),))
    assert resolved(route(backend("db", "bank")), services, (grant,)).told.holds
    assert not resolved(route(backend("db", "bank"), kind=RouteKind.GRPC), services, (grant,)).told.holds
    assert resolved(route(backend("db", "bank")), services, None).told.holds


def test_a_rule_without_backends_leads_to_the_parent_service():
    (only,) = http(resolved(route(), services, None, "web.shop")).route
    assert (only.destination.host, only.destination.port) == ("web.shop", 0)


def test_a_redirect_needs_no_backend():
    found = http(resolved(route(redirect=Redirect(scheme="https")), services, ()))
    assert (found.redirect.scheme, found.direct_response) == ("https", None)


def test_a_missing_mirror_is_left_out_and_is_a_flaw():
    found = resolved(route(backend(), mirrors=((backend("nobody"), 100.0), (backend(), 5.0))), services, ())
    assert [(each.destination.host, each.percentage) for each in http(found).mirrors] == [("web.shop", 5.0)]
    assert found.told.reason == "BackendNotFound"


def test_tcp_connections_go_to_usable_backends():
    (stream,) = resolved(route(backend(), backend("nobody"), kind=RouteKind.TCP), services, ()).streams
    assert [each.destination.host for each in stream.route] == ["web.shop"]


def match(kind, value, method="", headers=0, queries=0):
    return HttpMatch(
        uri=StringMatch(kind, value),
        method=StringMatch(MatchKind.EXACT, method) if method else None,
        headers=tuple((f"h{number}", StringMatch(MatchKind.EXACT, "")) for number in range(headers)),
        query_params=tuple((f"q{number}", StringMatch(MatchKind.EXACT, "")) for number in range(queries)),
    )


def test_matches_are_tried_in_the_standards_order():
    wanted = [
        match(MatchKind.EXACT, "/a"),
        match(MatchKind.PATH_PREFIX, "/abcd"),
        match(MatchKind.PATH_PREFIX, "/abc/"),
        match(MatchKind.REGEX, "/a.c"),
        match(MatchKind.PATH_PREFIX, "/", "GET"),
        match(MatchKind.PATH_PREFIX, "/", headers=2),
        match(MatchKind.PATH_PREFIX, "/", headers=1, queries=1),
        match(MatchKind.PATH_PREFIX, "/", headers=1),
        match(MatchKind.PATH_PREFIX, "/", queries=1),
        match(MatchKind.PATH_PREFIX, "/"),
    ]
    for one, other in permutations(wanted, 2):
        before = precedence(RouteKind.HTTP, one) < precedence(RouteKind.HTTP, other)
        assert before == (wanted.index(one) < wanted.index(other))


def test_grpc_calls_are_ordered_by_service_then_method():
    wanted = [
        match(MatchKind.EXACT, "/long.Service/A"),
        match(MatchKind.PATH_PREFIX, "/long.Service"),
        match(MatchKind.EXACT, "/short/Method"),
        match(MatchKind.REGEX, "/[^/]+/Method"),
        match(MatchKind.PATH_PREFIX, "/", headers=1),
        match(MatchKind.PATH_PREFIX, "/"),
    ]
    assert sorted(wanted, key=lambda each: precedence(RouteKind.GRPC, each)) == wanted
