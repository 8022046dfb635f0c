import pytest

from weft.explain.decision import Explanation, Kind, Outcome, Verdict
from weft.explain.expectation import Expectation, Expected, differences

V1 = Verdict(Kind.DELIVERED, "the call reaches v1", cluster="outbound|80|v1|app", workload="app-v1-0.shop", path="/x")
V2 = Verdict(
    Kind.DELIVERED, "the call reaches v2", cluster="outbound|80|v2|app", workload="app-v2-7d9f8c6b5-x2x7k.shop"
)
DENIED = Verdict(Kind.DENIED, "a policy denies it", status=403)


def explained(*outcomes):
    return Explanation(tuple(Outcome(odds, (), verdict) for odds, verdict in outcomes))


SPLIT = explained((0.9, V1), (0.1, V2))


@pytest.mark.parametrize(
    ("expectation", "explanation"),
    [
        (Expectation(Expected.ALLOWED), SPLIT),
        (Expectation(Expected.DENIED, status=403), explained((1.0, DENIED))),
        (Expectation(Expected.DENIED), explained((1.0, Verdict(Kind.CLOSED, "no plaintext")))),
        (Expectation(Expected.ANSWERED, status=404), explained((1.0, Verdict(Kind.ANSWERED, "no route", status=404)))),
        (Expectation(Expected.FAILED), explained((1.0, Verdict(Kind.FAILED, "nobody is there", status=503)))),
        (Expectation(subset="v2", odds=10), SPLIT),
        (Expectation(workload="app-v1", odds=90), SPLIT),
        (Expectation(workload="app-v2", odds=10), SPLIT),
        (Expectation(Expected.DENIED, odds=0), SPLIT),
        (Expectation(workload="app-v1-0", path="/x"), explained((1.0, V1))),
        (Expectation(), SPLIT),
        (Expectation(subset="v1"), explained((1.0, Verdict(Kind.DELIVERED, "a pod", cluster="outbound|80|~v1|deep")))),
    ],
)
def test_the_expected_result_has_no_differences(expectation, explanation):
    assert list(differences(expectation, explanation)) == []


@pytest.mark.parametrize(
    ("expectation", "explanation", "said"),
    [
        (
            Expectation(Expected.DENIED),
            SPLIT,
            "expected to be denied, but it is delivered: the call reaches v1 for 90 %",
        ),
        (Expectation(Expected.ALLOWED), explained((1.0, DENIED)), "it is denied: a policy denies it"),
        (Expectation(status=404), explained((1.0, DENIED)), "expected status 404, but it is 403"),
        (Expectation(subset="v2", odds=20), SPLIT, "expected for 20 % of requests, but true for 10 %"),
        (Expectation(subset="v1"), SPLIT, "expected subset v1, but it is v2 for 10 % of requests"),
        (Expectation(workload="app"), explained((1.0, DENIED)), "it reaches no workload"),
        (Expectation(path="/y"), explained((1.0, V1)), "expected path /y, but it is /x"),
        (Expectation(Expected.ALLOWED), explained((1.0, Verdict(Kind.UNKNOWN, "an authorizer decides"))), "unknown"),
    ],
)
def test_differences_are_described(expectation, explanation, said):
    assert said in "\n".join(differences(expectation, explanation))


def test_the_same_difference_of_several_outcomes_is_reported_once():
    found = list(differences(Expectation(Expected.ALLOWED), explained((0.9, DENIED), (0.1, DENIED))))
    assert found == ["expected to be allowed, but it is denied: a policy denies it"]
    found = list(differences(Expectation(Expected.ALLOWED), explained((0.5, V1), (0.3, DENIED), (0.2, DENIED))))
    assert found == ["expected to be allowed, but it is denied: a policy denies it for 50 % of requests"]
