"""Routes and rules in plain words, with their values."""

from datetime import timedelta

import pytest

from weft.inspect.describe.settings import of_route, of_rule, span
from weft.model.destination_rule import (
    ClientTls,
    ClientTlsMode,
    ConnectionPool,
    ConsistentHash,
    DestinationRule,
    HashKey,
    LoadBalancer,
    OutlierDetection,
    Subset,
    TrafficPolicy,
    Tunnel,
    Warmup,
)
from weft.model.virtual_service import (
    Abort,
    Delay,
    Destination,
    DirectResponse,
    Fault,
    HttpRoute,
    Mirror,
    Redirect,
    Retries,
    Rewrite,
)

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("route", "said"),
    [
        (HttpRoute(), ()),
        (HttpRoute(fault=Fault(Delay(5 * SECOND, 100.0))), ("5 s delay for 100 % of requests",)),
        (HttpRoute(fault=Fault(abort=Abort(503, percentage=0.5))), ("aborted with 503 for 0.5 % of requests",)),
        (
            HttpRoute(fault=Fault(abort=Abort(grpc_status="UNAVAILABLE", percentage=10.0))),
            ("aborted with gRPC UNAVAILABLE for 10 % of requests",),
        ),
        (
            HttpRoute(rewrite=Rewrite("/pepper", "salt.example"), timeout=SECOND),
            ("the matched part of the path becomes /pepper", "the host becomes salt.example", "timeout 1 s"),
        ),
        (HttpRoute(rewrite=Rewrite(prefix="/up")), ("the matched part of the path becomes /up",)),
        (HttpRoute(rewrite=Rewrite(regex_match="/v(.)", regex_rewrite=r"/\1")), (r"/v(.) in the path becomes /\1",)),
        (HttpRoute(timeout=3 * SECOND), ("timeout 3 s",)),
        (HttpRoute(timeout=timedelta()), ("no timeout",)),
        (HttpRoute(retries=Retries(0)), ("no retries",)),
        (HttpRoute(retries=Retries(1)), ("1 retry",)),
        (
            HttpRoute(retries=Retries(2, SECOND / 4, "5xx,reset")),
            ("2 retries on 5xx, reset, each within 250 ms",),
        ),
        (
            HttpRoute(mirrors=(Mirror(Destination("web", "v2", 80), 20.0),)),
            ("mirrored to web:80 subset v2 for 20 % of requests",),
        ),
    ],
)
def test_a_routes_effects_are_described(route, said):
    assert of_route(route) == said


@pytest.mark.parametrize("answer", [{"redirect": Redirect("/x")}, {"direct_response": DirectResponse(200)}])
def test_timeouts_retries_and_mirrors_are_not_described_for_direct_responses_and_redirects(answer):
    unused = {"timeout": SECOND, "retries": Retries(2), "mirrors": (Mirror(Destination("web")),)}
    assert of_route(HttpRoute(**answer, **unused)) == ()
    assert of_route(HttpRoute(fault=Fault(Delay(SECOND, 100.0)), **answer)) == ("1 s delay for 100 % of requests",)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (TrafficPolicy(connection_pool=ConnectionPool(10)), ("at most 10 connections",)),
        (
            TrafficPolicy(connection_pool=ConnectionPool(1, SECOND, max_pending_requests=5)),
            ("at most 1 connection", "at most 5 pending requests", "connect timeout 1 s"),
        ),
        (
            TrafficPolicy(outlier_detection=OutlierDetection(3, interval=SECOND, base_ejection_time=30 * SECOND)),
            ("a pod is ejected after 3 5xx responses in a row for 30 s, checked every 1 s",),
        ),
        (
            TrafficPolicy(outlier_detection=OutlierDetection(max_ejection_percent=50)),
            ("pods that fail are ejected, at most 50 % of them",),
        ),
        (
            TrafficPolicy(
                LoadBalancer(consistent_hash=ConsistentHash(HashKey.HEADER, "x-user"), warmup=Warmup(SECOND))
            ),
            (f"load balancer by hash of {HashKey.HEADER} x-user", "warmup 1 s"),
        ),
        (
            TrafficPolicy(tunnel=Tunnel("far.example.com", 443, by_post=True)),
            ("tunnel to far.example.com:443 by POST",),
        ),
        (
            TrafficPolicy(ports=((80, TrafficPolicy(tls=ClientTls(ClientTlsMode.SIMPLE))),)),
            ("port 80: TLS SIMPLE",),
        ),
    ],
)
def test_a_destination_rules_settings_are_described_with_values(policy, said):
    assert of_rule(DestinationRule("web", "shop", "web", policy)) == said


def test_settings_of_a_subset_name_the_subset():
    subset = Subset("v2", policy=TrafficPolicy(connection_pool=ConnectionPool(10)))
    assert of_rule(DestinationRule("web", "shop", "web", subsets=(subset,))) == ("subset v2: at most 10 connections",)


def test_durations_are_short():
    assert [span(each) for each in (timedelta(), SECOND / 2, 90 * SECOND)] == ["0 s", "500 ms", "90 s"]
