from datetime import timedelta

import msgspec
import pytest
from envoy.config.route.v3.route_components_pb2 import Route, RouteAction, RouteMatch

from translate.views import HOST, route, to, view
from weft.model.destination_rule import ConsistentHash, DestinationRule, HashKey, LoadBalancer, TrafficPolicy
from weft.model.virtual_service import (
    Destination,
    HeaderChanges,
    Headers,
    Mirror,
    Redirect,
    Retries,
    Rewrite,
    WeightedDestination,
)
from weft.translate.actions import act, destination_port, fraction, plain, replace_prefix, taking_part
from weft.translate.view import RouteTarget


def _acted(written, seen=None, port=80):
    result = Route()
    act(result, written, seen or view(), port)
    return result


def test_by_default_a_request_is_retried_twice_and_has_no_timeout():
    action = plain(view(), 80)
    assert action.cluster == f"outbound|80||{HOST}"
    assert (action.retry_policy.num_retries.value, action.timeout.seconds) == (2, 0)
    assert action.HasField("timeout")
    assert action.HasField("max_grpc_timeout")


def test_a_destination_with_weight_0_gets_nothing_unless_all_have_weight_0():
    some = (to(subset="a", weight=0), to(subset="b", weight=1))
    assert taking_part(some) == some[1:]
    assert taking_part(some[:1]) == some[:1]
    assert _acted(route(*some)).route.cluster == f"outbound|80|b|{HOST}"


def test_weights_are_kept_as_written():
    clusters = _acted(route(to(subset="a", weight=90), to(subset="b", weight=10))).route.weighted_clusters.clusters
    assert [(entry.name.split("|")[2], entry.weight.value) for entry in clusters] == [("a", 90), ("b", 10)]


def test_a_destination_without_port_uses_the_only_port_or_the_called_port():
    seen = view(targets=(RouteTarget("one", ports=(8080,)), RouteTarget("two", ports=(1, 2))))
    assert destination_port(seen, Destination("one"), 80) == 8080
    assert destination_port(seen, Destination("two"), 80) == 80
    assert destination_port(seen, Destination("two", port=2), 80) == 2
    assert destination_port(seen, Destination("unknown"), 80) == 80


def test_the_proxy_chooses_a_pod_of_another_headless_service():
    to_deep = route(to("deep", "v1"), mirrors=(Mirror(Destination("deep")),))
    made = _acted(to_deep, view(targets=(RouteTarget("deep", ports=(80,), chosen=True),))).route
    assert (made.cluster, made.request_mirror_policies[0].cluster) == ("outbound|80|~v1|deep", "outbound|80|~|deep")


def test_status_codes_among_the_reasons_become_codes():
    policy = _acted(route(retries=Retries(retry_on="gateway-error, 503,429"))).route.retry_policy
    assert list(policy.retriable_status_codes) == [503, 429]
    assert policy.retry_on == "gateway-error,retriable-status-codes"


def test_no_attempts_is_no_policy():
    assert not _acted(route(retries=Retries(attempts=0))).route.HasField("retry_policy")


def test_setting_host_rewrites_it_and_a_written_rewrite_wins():
    headers = Headers(request=HeaderChanges(set=(("Host", "a"), ("x", "1"))))
    acted = _acted(route(headers=headers))
    assert acted.route.host_rewrite_literal == "a"
    assert [option.header.key for option in acted.request_headers_to_add] == ["x"]
    added = _acted(route(headers=Headers(request=HeaderChanges(add=((":authority", "c"),)))))
    assert added.route.host_rewrite_literal == "c" and not added.request_headers_to_add
    assert _acted(route(headers=headers, rewrite=Rewrite(authority="b"))).route.host_rewrite_literal == "b"


def test_the_host_of_the_whole_route_goes_before_that_of_a_destination():
    own = WeightedDestination(Destination(HOST), headers=Headers(request=HeaderChanges(set=(("host", "d"),))))
    assert _acted(route(own)).route.host_rewrite_literal == "d"
    whole = Headers(request=HeaderChanges(set=(("host", "a"),)))
    assert _acted(route(own, headers=whole)).route.host_rewrite_literal == "a"


def test_headers_of_an_only_destination_are_those_of_the_route():
    only = WeightedDestination(Destination(HOST), headers=Headers(response=HeaderChanges(remove=("server",))))
    assert list(_acted(route(only)).response_headers_to_remove) == ["server"]


def test_a_mirror_of_no_percent_is_none():
    mirrors = (Mirror(Destination(HOST), 0.0), Mirror(Destination("audit"), 2.5))
    (policy,) = _acted(route(mirrors=mirrors)).route.request_mirror_policies
    assert policy.cluster.endswith("audit") and policy.runtime_fraction.default_value == fraction(2.5)
    assert fraction(2.5).numerator == 25_000


@pytest.mark.parametrize(
    ("key", "field"),
    [
        (HashKey.HEADER, "header"),
        (HashKey.COOKIE, "cookie"),
        (HashKey.QUERY, "query_parameter"),
        (HashKey.SOURCE_IP, "connection_properties"),
    ],
)
def test_the_hash_key_of_the_destination_is_in_the_route(key, field):
    hashing = TrafficPolicy(LoadBalancer(consistent_hash=ConsistentHash(key, "x", cookie_ttl=timedelta(0))))
    rule = DestinationRule("r", "shop", HOST, hashing)
    (own,) = plain(view(rule=rule), 80).hash_policy
    assert own.HasField(field)
    (other,) = _acted(route(to("stock")), view(targets=(RouteTarget("stock", rule=rule),))).route.hash_policy
    assert other == own


def test_a_redirect_keeps_the_requests_port_unless_it_is_the_default_port():
    redirect = Redirect(uri="/x", derive_port="FROM_REQUEST_PORT", code=302)
    assert _acted(route(redirect=redirect), port=8080).redirect.port_redirect == 8080
    assert _acted(route(redirect=redirect), port=80).redirect.port_redirect == 0


@pytest.mark.parametrize(
    ("match", "new", "prefix", "regex"),
    [
        (RouteMatch(path_separated_prefix="/v1"), "/v2", "/v2", ""),
        (RouteMatch(path_separated_prefix="/v1"), "/v2/", "/v2", ""),
        (RouteMatch(path_separated_prefix="/v1"), "/", "", "^/v1/?"),
        (RouteMatch(path_separated_prefix="/a.b"), "/", "", "^/a\\.b/?"),
        (RouteMatch(prefix="/"), "/v2", "/v2/", ""),
        (RouteMatch(prefix="/"), "/", "", ""),
    ],
)
def test_between_a_new_prefix_and_the_rest_stands_one_slash(match, new, prefix, regex):
    action = RouteAction()
    replace_prefix(action, new, match)
    assert (action.prefix_rewrite, action.regex_rewrite.pattern.regex) == (prefix, regex)
    assert action.regex_rewrite.substitution == ("/" if regex else "")


def test_the_weight_of_invalid_backends_gets_500():
    action = _acted(msgspec.structs.replace(route(to(weight=3)), failing=1)).route
    assert [(entry.name, entry.weight.value) for entry in action.weighted_clusters.clusters] == [
        (f"outbound|80||{HOST}", 3),
        ("NoSuchBackend", 1),
    ]
    assert action.cluster_not_found_response_code == RouteAction.INTERNAL_SERVER_ERROR
    assert _acted(route(to(weight=3))).route.cluster_not_found_response_code == 0
