from datetime import timedelta

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.route.v3.route_components_pb2 import Route

from translate.views import route, to, view
from weft.model.virtual_service import Retries
from weft.translate import policy, retries
from weft.translate.routes import routes


def _found(seen):
    return [
        (each.route.retry_policy.retry_on, each.route.retry_policy.num_retries.value, len(each.match.headers))
        for each in routes(seen, 80)
    ]


def test_by_default_only_requests_that_were_not_processed_are_retried():
    reasons = retries.by_default().retry_on.split(",")
    assert not {"cancelled", "retriable-status-codes", "reset", "5xx", "gateway-error"} & {*reasons}


def test_configured_retries_without_retry_on_have_istios_documented_default():
    made = retries.policy(Retries(attempts=7, per_try_timeout=timedelta(seconds=2), backoff=timedelta(seconds=1)))
    assert made.retry_on == "connect-failure,refused-stream,unavailable,cancelled"
    assert (made.num_retries.value, made.per_try_timeout.seconds) == (7, 2)
    assert made.retry_back_off.base_interval.seconds == 1


def test_resets_are_replayed_for_methods_that_may_be_repeated():
    first, second = retries.with_replays(_plain())
    assert first.match.headers[0].string_match.safe_regex.regex == retries.IDEMPOTENT
    assert first.route.retry_policy.retry_on == "reset-before-request,reset"
    assert second == _plain()


def test_only_routes_to_a_service_without_proxies_have_a_replay_route():
    outside = _found(view(meshed=()))
    assert outside == [(f"{retries.BY_DEFAULT},reset", 2, 1), (retries.BY_DEFAULT, 2, 0)]
    assert _found(view(meshed=(80,))) == [(retries.BY_DEFAULT, 2, 0)]


def test_configured_retries_are_applied_exactly():
    for written, expected in (
        (Retries(attempts=0), [("", 0, 0)]),
        (Retries(attempts=5, retry_on="5xx"), [("5xx", 5, 0)]),
    ):
        assert _found(view(route(to(), retries=written), meshed=())) == expected


def test_a_route_without_retries_has_a_replay_route_as_without_a_virtual_service():
    assert [headers for _, _, headers in _found(view(route(to()), meshed=()))] == [1, 0]
    assert [headers for _, _, headers in _found(view(route(to("elsewhere")), meshed=()))] == [0]


def test_the_cluster_to_the_own_workload_allows_many_concurrent_retries():
    cluster = Cluster()
    policy.limit(cluster, None)
    retries.allow_replays(cluster)
    assert cluster.circuit_breakers.thresholds[0].retry_budget.min_retry_concurrency.value == 100


def _plain():
    result = Route()
    result.match.prefix = "/"
    result.route.cluster = "workload"
    result.route.retry_policy.CopyFrom(retries.to_workload())
    return result
