from datetime import UTC, datetime

from model.builders import instance, put, service
from weft.base.problem import Problem, Where
from weft.explain.decision import Kind
from weft.inspect.ask.answer import answer
from weft.inspect.ask.causes import Wrong
from weft.inspect.ask.question import Question
from weft.inspect.stage import Stage
from weft.mesh.mesh import Mesh
from weft.model.names import ObjectKey, Origin

NOW = datetime(2026, 11, 16, 14, 30, tzinfo=UTC)


def test_a_question_is_resolved_to_a_pod_and_explained():
    mesh = Mesh()
    put(mesh, service("payments", addresses=("10.96.0.7",)))
    put(mesh, instance("orders-0", "orders", address="10.244.0.2", meshed=True, workload="orders"))
    put(mesh, instance("payments-0", "payments", address="10.244.0.3", meshed=True))
    found = answer(Stage(mesh), Question("orders", "http://payments/charge", method="post"), NOW)
    assert (found.request.caller, found.request.method) == ("orders-0.shop", "POST")
    assert found.request.now == int(NOW.timestamp())
    assert found.explanation.verdict.kind is Kind.DELIVERED
    assert found.problems == ()


def test_sources_have_file_and_line_and_known_problems_are_listed():
    mesh = Mesh()
    origin = Origin(ObjectKey("Service", "shop", "payments"), "", "payments.yaml", 4)
    put(mesh, service("payments", addresses=("10.96.0.7",), origin=origin))
    put(mesh, instance("orders-0", "orders", address="10.244.0.2", meshed=True))
    wrong = Problem(Where("payments.yaml", 5, "Service shop/payments"), "nobody is selected", code="WFT0301")
    other = Problem(Where("orders.yaml", 5, "Service shop/orders"), "nobody is selected", code="WFT0301")
    question = Question("orders", "http://payments/")
    found = answer(Stage(mesh), question, NOW, Wrong((wrong, other)))
    assert any(
        line.endswith("has no healthy endpoint  [Service shop/payments (payments.yaml:4)]") for line in found.lines
    )
    assert found.problems == (wrong,)
    assert answer(Stage(mesh), question, NOW).problems == ()
