from datetime import UTC, datetime

import pytest

from model.builders import instance, put, service
from weft.base.problem import Problem, Where
from weft.control.clues import Wrong
from weft.control.history import Forgotten, History
from weft.control.question import BadTime, Question, answer, moment
from weft.control.stage import Stage
from weft.explain.decision import Kind
from weft.explain.url import BadSource
from weft.model.mesh import Mesh
from weft.model.names import ObjectKey, Origin
from weft.model.settings import Settings

NOW = datetime(2026, 11, 16, 14, 30, tzinfo=UTC)


def test_a_question_in_a_persons_words_is_answered_for_the_pod_that_is_meant():
    mesh = Mesh()
    put(mesh, service("payments", addresses=("10.96.0.7",)))
    put(mesh, instance("orders-0", "orders", address="10.244.0.2", meshed=True, workload="orders"))
    put(mesh, instance("payments-0", "payments", address="10.244.0.3", meshed=True))
    found = answer(Stage(mesh), Question("orders", "http://payments/charge", method="post"), NOW)
    assert (found.request.caller, found.request.method) == ("orders-0.shop", "POST")
    assert found.request.now == int(NOW.timestamp())
    assert found.explanation.verdict.kind is Kind.DELIVERED
    assert found.problems == ()


def test_objects_are_told_with_their_places_and_what_is_wrong_with_them_if_somebody_knows():
    mesh = Mesh()
    origin = Origin(ObjectKey("Service", "shop", "payments"), "", "payments.yaml", 4)
    put(mesh, service("payments", addresses=("10.96.0.7",), origin=origin))
    put(mesh, instance("orders-0", "orders", address="10.244.0.2", meshed=True))
    wrong = Problem(Where("payments.yaml", 5, "Service shop/payments"), "nobody is selected", code="WFT0301")
    other = Problem(Where("orders.yaml", 5, "Service shop/orders"), "nobody is selected", code="WFT0301")
    question = Question("orders", "http://payments/")
    found = answer(Stage(mesh), question, NOW, Wrong((wrong, other)))
    assert any(line.endswith("nobody is behind it  [Service shop/payments (payments.yaml:4)]") for line in found.lines)
    assert found.problems == (wrong,)
    assert answer(Stage(mesh), question, NOW).problems == ()


def test_only_who_comes_to_a_gateway_may_be_anywhere():
    mesh = Mesh()
    put(mesh, instance("orders-0", "orders", address="10.244.0.2", meshed=True, workload="orders"))
    with pytest.raises(BadSource, match=r"`198\.51\.100\.7` is not where orders calls from: it is no gateway"):
        answer(Stage(mesh), Question("orders", "http://payments/", source="198.51.100.7"), NOW)


@pytest.fixture
def history():
    """It began at 14:00, and changed at 14:01 and, in the middle of a second, after 14:02."""
    times = [
        datetime(2026, 11, 16, 14, 0, tzinfo=UTC).timestamp(),
        datetime(2026, 11, 16, 14, 1, tzinfo=UTC).timestamp(),
        datetime(2026, 11, 16, 14, 2, 7, 500_000, tzinfo=UTC).timestamp(),
    ]
    made = History(Mesh(), Settings(), digest=lambda: f"c0ffee00000{made.latest}", clock=times.pop)
    times.reverse()
    for number in range(3):
        made.note(ObjectKey("Service", "shop", str(number)), (), (service(str(number)),))
        made.seal()
    return made


@pytest.mark.parametrize(
    ("when", "number"),
    [
        ("14:00", 0),
        ("14:01", 1),
        ("14:01:59", 1),
        ("14:02:06", 1),
        ("14:02:07", 2),
        ("2026-11-16T14:02:07", 2),
        ("2026-11-16T14:02:07.4", 1),
        ("14:03", 2),
        ("2026-11-16T14:01", 1),
        ("2026-11-16T15:01+01:00", 1),
        ("@1", 1),
        ("@-1", 1),
        ("@-2", 0),
        ("@14:01", 1),
        ("@2026-11-16T14:01", 1),
        ("@c0ffee000001", 1),
        ("@c0ffee000000", 0),
        ("@c0ff", 2),
    ],
)
def test_a_moment_is_meant_by_its_time_or_its_number(history, when, number):
    assert moment(history, when, lambda: NOW) == number


def test_a_time_of_day_that_is_yet_to_come_was_yesterday(history):
    with pytest.raises(Forgotten):
        moment(history, "14:31", lambda: NOW)


@pytest.mark.parametrize("when", ["soon", "@", "@one", "25:00", "14.03"])
def test_what_is_no_time_is_said(history, when):
    with pytest.raises(BadTime, match="no time"):
        moment(history, when, lambda: NOW)
