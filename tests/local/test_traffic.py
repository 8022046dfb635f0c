from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from weft.local.traffic import Counts, Traffic, TrafficEdge, percentile, read_stats

PAYMENTS = TrafficEdge("payments.shop.svc.cluster.local", 80, "v1")
NAME = "cluster.outbound|80|v1|payments.shop.svc.cluster.local"


def body(*stats: dict[str, object], times: dict[float, int] | None = None) -> bytes:
    totals = [{"lower_bound": bound, "width": 0.1, "count": count} for bound, count in (times or {}).items()]
    details = [{"name": f"{NAME}.upstream_rq_time", "totals": totals}]
    return msgspec.json.encode({"stats": [*stats, {"histograms": {"supported_percentiles": [], "details": details}}]})


def test_reads_the_stats_of_envoy_without_the_duplicated_counters():
    scrape = read_stats(
        body(
            {"name": f"{NAME}.upstream_rq_completed", "value": 10},
            {"name": f"{NAME}.external.upstream_rq_completed", "value": 10},
            {"name": f"{NAME}.upstream_rq_5xx", "value": 2},
            {"name": f"{NAME}.upstream_cx_total", "value": 3},
            {"name": "cluster.outbound|9000||db.shop.svc.cluster.local;.upstream_cx_total", "value": 4},
            {"name": "listener.10.96.0.7_3306.downstream_pre_cx_timeout", "value": 5},
            {"name": "listener.[fd00_10_96__7]_3306.downstream_pre_cx_timeout", "value": 6},
            {"name": "listener.10.96.0.7_3306.downstream_listener_filter_remote_close", "value": 7},
            {"name": "http_inspector.read_error", "value": 8},
            times={1: 9, 20: 1},
        )
    )
    assert scrape.edges == {
        PAYMENTS: Counts(10, 2, 3, Counter({1.0: 9, 20.0: 1})),
        TrafficEdge("db.shop.svc.cluster.local", 9000): Counts(connections=4),
    }
    assert scrape.timeouts == {("10.96.0.7", 3306): 5, ("fd00:10:96::7", 3306): 6}
    assert scrape.cuts == {("10.96.0.7", 3306): 7}
    assert scrape.unread == 8


@pytest.mark.parametrize("wrong", [b"", b"{}", b"[1]", b'{"stats": []}', b"no healthy upstream"])
def test_an_invalid_stats_response_has_no_edges(wrong):
    assert read_stats(wrong).edges == {}


def test_retries_are_no_destination_of_their_own():
    scrape = read_stats(
        body(
            {"name": f"{NAME}.upstream_rq_completed", "value": 10},
            {"name": f"{NAME}.retry.upstream_rq_completed", "value": 4},
            {"name": f"{NAME}.retry.upstream_rq_5xx", "value": 4},
        )
    )
    assert {edge: counts.requests for edge, counts in scrape.edges.items()} == {PAYMENTS: 10}


def answered(cluster: str, host: str, code: int, value: int) -> dict[str, object]:
    name = f"weft.answered_by_proxy.cluster.{cluster}.virtual_host.{host}.response_code.{code}"
    return {"name": name, "value": value}


def test_responses_of_the_proxy_itself_count_for_the_intended_destination():
    host = "payments.shop.svc.cluster.local"
    scrape = read_stats(
        body(
            answered(f"outbound|80|v1|{host}", f"{host}:80", 503, 5),
            answered(f"outbound|80|v1|{host}", f"{host}:80", 418, 2),
            answered(f"outbound|80|v1|{host};", f"{host}:80", 200, 1),
            answered("", f"{host}:80", 301, 3),
            answered("", "api.example.com:443", 503, 1),
            answered("", "block_all", 502, 9),
            answered("", "", 404, 9),
        )
    )
    found = {(edge.host, edge.port, edge.subset): (each.requests, each.errors) for edge, each in scrape.edges.items()}
    found.pop((PAYMENTS.host, 80, "v1"), None)
    assert scrape.edges[TrafficEdge(host, 80, "v1", by_proxy=True)] == Counts(8, 6)
    assert found == {(host, 80, ""): (3, 0), ("api.example.com", 443, ""): (1, 1)}


def test_responses_of_the_proxy_and_of_an_upstream_share_a_row_and_reset_separately():
    traffic = Traffic()
    own = TrafficEdge(PAYMENTS.host, PAYMENTS.port, PAYMENTS.subset, by_proxy=True)
    traffic.record("web-0", "shop/web", {PAYMENTS: Counts(1000), own: Counts(0, 0)}, now=0)
    traffic.record("web-0", "shop/web", {PAYMENTS: Counts(1050), own: Counts(50, 50)}, now=1)
    (edge,) = traffic.edges()
    assert (edge.requests, edge.requests_per_second, edge.success) == (1100, 100, 0.5)
    traffic.record("web-0", "shop/web", {PAYMENTS: Counts(1050)}, now=2)
    (edge,) = traffic.edges()
    assert edge.requests == 1100


def test_a_denied_request_is_not_counted_as_a_failure_of_the_destination():
    def name(stat):
        return {"name": f"cluster.outbound|80|v1|{PAYMENTS.host};.{stat}", "value": 0}

    def scrape(**values):
        return read_stats(body(*({**name(f"upstream_rq_{stat}"), "value": value} for stat, value in values.items())))

    traffic = Traffic()
    traffic.record("web-0", "shop/web", scrape(completed=10).edges, now=0)
    traffic.record("web-0", "shop/web", scrape(completed=20, **{"403": 3, "401": 1}).edges, now=1)
    (edge,) = traffic.edges()
    assert (edge.success, edge.denied) == (1.0, 0.4)


def test_sums_the_pods_of_a_workload_over_the_last_seconds():
    traffic = Traffic(window=5)
    for second in range(11):
        for pod in ("web-0", "web-1"):
            counts = Counts(second * 10, second, 1, Counter({2.0: second * 10}))
            traffic.record(pod, "shop/web", {PAYMENTS: counts}, now=second)
    (edge,) = traffic.edges()
    assert (edge.source, edge.destination, edge.port, edge.subset) == ("shop/web", PAYMENTS.host, 80, "v1")
    assert edge.requests_per_second == pytest.approx(20)
    assert edge.success == pytest.approx(0.9)
    assert edge.p50_ms == pytest.approx(2.5)
    assert edge.requests == 200


def test_what_happened_before_the_window_is_no_more_now():
    traffic = Traffic(window=3)
    for second in range(10):
        traffic.record("web-0", "shop/web", {PAYMENTS: Counts(100)}, now=second)
    (edge,) = traffic.edges()
    assert (edge.requests_per_second, edge.success, edge.p50_ms, edge.requests) == (0, None, None, 100)


def test_a_proxy_that_starts_again_and_a_pod_that_ends_lose_nothing():
    traffic = Traffic()
    traffic.record("web-0", "shop/web", {PAYMENTS: Counts(100)}, now=0)
    traffic.record("web-0", "shop/web", {PAYMENTS: Counts(7)}, now=1)
    (edge,) = traffic.edges()
    assert (edge.requests, edge.requests_per_second) == (107, 7)
    traffic.forget("web-0")
    (edge,) = traffic.edges()
    assert (edge.requests, edge.requests_per_second) == (107, 0)


def test_tcp_edges_count_connections():
    traffic = Traffic()
    traffic.record("web-0", "shop/web", {TrafficEdge("db", 9000): Counts(connections=4)}, now=0)
    assert traffic.edges()[0].connections == 4


def test_percentiles_come_from_the_buckets():
    times = Counter({0.0: 50, 10.0: 49, 250.0: 1})
    assert percentile(times, 0.5) == pytest.approx(1.0)
    assert percentile(times, 0.99) == pytest.approx(11.0)
    assert percentile(times, 1.0) == pytest.approx(260.0)
    assert percentile(Counter(), 0.5) is None


def test_a_restarted_counter_never_gives_a_success_rate_outside_0_to_100_percent():
    before = Counts(requests=5_000, connections=9)
    for after, success in (
        (Counts(requests=5_001, errors=79, connections=9), 1 - 79 / 5_001),  # the cluster was replaced in between
        (Counts(requests=5_010, denied=11, connections=9), 1.0),
        (Counts(requests=6_000, errors=10, connections=9), 1 - 10 / 1_000),
    ):
        traffic = Traffic()
        for moment, counts in enumerate((before, after)):
            traffic.record("shop/a-0", "shop/a", {PAYMENTS: counts}, now=float(moment))
        (edge,) = traffic.edges()
        assert edge.success == pytest.approx(success)
    errors, fewer = Counts(requests=10, errors=9, connections=1), Counts(requests=20, errors=3, connections=1)
    assert fewer.since(errors) == fewer
