"""Tests of the 20 % rule."""

from weft.base.problem import Severity
from weft.inspect.audit.proxy_memory import AMBIENT, PodMemory, costs, findings


def pod(workload="web", proxy=20, application=200, node="a", namespace="shop"):
    return PodMemory(workload, namespace, node, proxy, "measured", application, "limit")


def test_the_worst_pod_stands_for_its_workload():
    (row,) = costs([pod(proxy=20), pod(proxy=90), pod(proxy=None)])
    assert (row.pods, row.proxy, row.share, row.is_over) == (3, 90, 0.45, True)


def test_a_share_of_a_fifth_is_not_over_the_rule():
    (row,) = costs([pod(proxy=40)])
    assert row.share == 0.2 and not row.is_over and findings([row]) == ()


def test_unknown_application_memory_has_no_share():
    (row,) = costs([pod(application=None)])
    assert row.share is None and not row.is_over


def test_the_proxies_that_a_per_node_proxy_would_replace_are_counted_per_node():
    rows = costs([pod("web", node="a"), pod("web", node="b"), pod("api", node="a"), pod("db", node="b", proxy=1)])
    assert {row.workload: row.sharing for row in rows} == {"web": 2, "api": 2, "db": 2}
    assert "not measured" in AMBIENT


def test_the_per_node_proxy_is_assumed_as_large_as_the_largest_on_the_node():
    rows = costs([pod("web", proxy=30), pod("api", proxy=90), pod("db", proxy=None), pod("far", node="b", proxy=None)])
    assert {row.workload: row.ambient for row in rows} == {"web": 30, "api": 30, "db": 30, "far": None}


def test_workloads_over_the_rule_are_one_finding():
    (found,) = findings(costs([pod(f"w{number}", proxy=50) for number in range(7)] + [pod("small", proxy=1)]))
    assert found.severity is Severity.INFO
    assert found.what.startswith(
        "7 of 8 workloads have a proxy that needs more than 20% of the application's memory: shop/w0, "
    )
    assert found.what.endswith("shop/w4 and 2 more")
