from weft.explain.decision import DecisionStage, Explanation, Kind, ObjectSource, Outcome, Step, Verdict
from weft.explain.text import line, lines, verdict

STEP = Step(
    DecisionStage.ROUTE,
    "the route r matches",
    (ObjectSource("VirtualService", "shop", "orders", "mesh.yaml", 7),),
    "web",
)


def test_each_decision_is_a_line_with_its_source_and_the_verdict_is_last():
    one = Outcome(1.0, (STEP,), Verdict(Kind.DENIED, "no", status=403, detail="rbac"))
    assert list(lines(Explanation((one,)))) == [
        "web: route: the route r matches  [VirtualService shop/orders (mesh.yaml:7)]",
        "→ denied 403: no (rbac)",
    ]


def test_shared_steps_are_printed_once():
    a, b = Step(DecisionStage.CLUSTER, "a"), Step(DecisionStage.CLUSTER, "b")
    outcomes = (
        Outcome(0.75, (STEP, a), Verdict(Kind.DELIVERED, "yes", method="GET", host="h", path="/p")),
        Outcome(0.25, (STEP, b), Verdict(Kind.FAILED, "no", status=503, flags="UH", delay=2.0)),
    )
    said = list(lines(Explanation(outcomes)))
    assert said[1:] == [
        "75 % of requests:",
        "  -: cluster: a",
        "  → delivered: yes as GET h/p",
        "25 % of requests:",
        "  -: cluster: b",
        "  → failed 503 after 2 s: no (UH)",
    ]
    same = Outcome(0.5, (STEP,), Verdict(Kind.DELIVERED, "yes"))
    assert len(list(lines(Explanation((same, same))))) == 5


def way(odds, subset, *, policy="p rule[0] allows it", number=1):
    """An outcome through a different subset and a different proxy."""
    cluster, endpoint, server = f"outbound|80|{subset}|web", f"10.0.0.{number}:80", f"web-{subset}-0"
    steps = (
        STEP,
        Step(DecisionStage.ROUTE, f"by weight {odds} it goes to {cluster}", proxy="web"),
        Step(DecisionStage.ENDPOINT, f"{cluster}: {endpoint}", proxy="web"),
        Step(DecisionStage.TLS, f"for outbound_.80_.{subset}_.web", proxy="web"),
        Step(DecisionStage.POLICY, policy, proxy=server),
        Step(DecisionStage.WORKLOAD, f"the call reaches {server}", proxy=server),
    )
    verdict = Verdict(Kind.DELIVERED, f"the call reaches {server}", cluster=cluster, endpoints=((endpoint, 1.0),))
    return Outcome(odds, steps, verdict)


def test_an_outcome_with_equal_later_steps_prints_only_its_different_step():
    said = list(lines(Explanation((way(0.9, "v1"), way(0.1, "v2", number=2)))))
    assert len(said) == 1 + 7 + 4
    assert said[-4:] == [
        "10 % of requests:",
        "  web: route: by weight 0.1 it goes to outbound|80|v2|web",
        "  … 4 decisions as above",
        "  → delivered: the call reaches web-v2-0",
    ]


def test_an_outcome_prints_its_steps_from_the_first_difference():
    said = list(lines(Explanation((way(0.9, "v1"), way(0.1, "v2", policy="p rule[1] denies it", number=2)))))
    assert said[-5:] == [
        "  web: route: by weight 0.1 it goes to outbound|80|v2|web",
        "  … 2 decisions as above",
        "  web-v2-0: policy: p rule[1] denies it",
        "  web-v2-0: workload: the call reaches web-v2-0",
        "  → delivered: the call reaches web-v2-0",
    ]


def test_a_grpc_status_is_printed():
    assert "200 (gRPC status 14)" in verdict(Verdict(Kind.FAILED, "no", status=200, grpc_status=14))


def test_a_long_list_of_objects_is_shortened():
    sources = tuple(ObjectSource("Service", "shop", f"s{number}") for number in range(7))
    said = next(
        lines(Explanation((Outcome(1.0, (Step(DecisionStage.INBOUND, "it", sources),), Verdict(Kind.FAILED, "no")),)))
    )
    assert said.endswith("[Service shop/s0; Service shop/s1; Service shop/s2; Service shop/s3; and 3 more]")


def test_deciding_objects_are_never_cut_and_each_policy_comes_before_a_second_rule():
    services = tuple(ObjectSource("Service", "shop", f"s{number}") for number in range(7))
    mode = ObjectSource("PeerAuthentication", "shop", "strict")
    assert "PeerAuthentication shop/strict; " in line(Step(DecisionStage.INBOUND, "it", (*services, mode)))
    rules = tuple(ObjectSource("AuthorizationPolicy", "shop", "first", part=f"rule[{number}]") for number in range(5))
    said = line(Step(DecisionStage.POLICY, "it", (*rules, ObjectSource("AuthorizationPolicy", "shop", "last"))))
    assert "shop/last" in said and said.endswith("and 2 more]")


def test_a_verdict_names_the_deciding_object():
    found = Verdict(
        Kind.DENIED, "no", status=403, sources=(ObjectSource("AuthorizationPolicy", "shop", "p", "p.yaml", 3),)
    )
    assert verdict(found) == "denied 403: no  [AuthorizationPolicy shop/p (p.yaml:3)]"
