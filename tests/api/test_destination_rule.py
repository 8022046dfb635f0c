import pytest

from api.reading import istio, told, value
from weft.model.destination_rule import LoadBalancer, SimpleBalancer, Subset, TrafficPolicy


def test_reads_a_rule():
    found = value(
        istio(
            "DestinationRule",
            """
        host: payments
        workloadSelector: {matchLabels: {app: web}}
        exportTo: [.]
        subsets:
        - name: v1
          labels: {version: v1}
        - name: v2
          labels: {version: v2}
          trafficPolicy: {loadBalancer: {simple: RANDOM}}
        """,
        )
    )
    assert found.host == "payments.shop.svc.cluster.local"
    assert found.workload_selector == (("app", "web"),)
    assert found.subsets == (
        Subset("v1", (("version", "v1"),), None, 9),
        Subset("v2", (("version", "v2"),), TrafficPolicy(LoadBalancer(SimpleBalancer.RANDOM), line=13), 11),
    )


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("{subsets: []}", "5 `host` is required"),
        ("{host: a b}", "5 `a b` is not a host name (use letters, digits, - and .)"),
        ("{host: a, subsets: [{name: x}, {name: x}]}", "5 two subsets are named `x`"),
        (
            "{host: a, subsets: [{name: X}]}",
            "5 `X` is not a subset name (use lower-case letters, digits and -)",
        ),
        ("{host: a, subsets: [{labels: {a: b}}]}", "5 `name` is required"),
        (
            "{host: a, workloadSelector: {matchLabels: {a: b}}, exportTo: [sales]}",
            "5 a rule with `workloadSelector` cannot be exported beyond its own namespace",
        ),
        ("{host: a, subset: []}", "5 unknown field `subset` (did you mean `subsets`?)"),
    ],
)
def test_reports_what_is_wrong(spec, problem):
    assert told(istio("DestinationRule", spec)) == [problem.replace("5 `host` is", "4 `host` is")]
