from datetime import UTC, datetime

import pytest
from tests.inspect.test_stage import DENY, shop

from model.builders import instance, put
from weft.api.parse import parse
from weft.api.request_test import RequestCase
from weft.base.problem import Where
from weft.files.documents import read_documents
from weft.inspect.compare.changed_objects import Attribution, changed_object, edits, turned_by
from weft.inspect.compare.trial import judged
from weft.inspect.stage import Stage
from weft.model.names import ObjectKey

NOW = datetime(2026, 11, 16, tzinfo=UTC)
ROUTE = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: payments, namespace: shop}
spec:
  hosts: [payments]
  http:
  - match: [{uri: {prefix: /old}}]
    redirect: {uri: /new}
  - route: [{destination: {host: payments}}]
"""


def with_objects(*texts):
    mesh = shop()
    for number, text in enumerate(texts):
        for document in read_documents(text.encode(), f"{number}.yaml").documents:
            mesh.apply(document.key, parse(document).values)
    return mesh


def test_added_removed_and_changed_objects_are_listed():
    was, is_ = with_objects(ROUTE), with_objects(ROUTE.replace("/new", "/newer"), DENY)
    is_.apply(ObjectKey("Service", "shop", "payments"), ())
    said = [(each.what, str(each)) for each in map(changed_object, edits(was, is_))]
    assert said == [
        ("added", "AuthorizationPolicy shop/only-orders (1.yaml:2)"),
        ("removed", "Service shop/payments"),
        ("changed", "VirtualService shop/payments (0.yaml:2)"),
    ]


def test_a_moved_object_and_a_removed_pod_are_no_change():
    moved = with_objects("\n\n" + ROUTE)
    moved.apply(ObjectKey("Pod", "shop", "orders-0"), ())
    assert edits(with_objects(ROUTE), moved) == ()


def because(path, caller="frontend", *, was=(), is_=()):
    before, after = Stage(with_objects(*was)), Stage(with_objects(*is_))
    case = RequestCase(Where(), caller, f"http://payments{path}", "shop")
    attribution = Attribution(before, edits(before.mesh, after.mesh), NOW)
    return attribution.of(case, judged(before, case, NOW), judged(after, case, NOW))


def test_among_several_changed_objects_the_deciding_one_is_returned():
    assert because("/old", is_=(ROUTE, DENY)) == "VirtualService shop/payments (0.yaml:2)"
    assert because("/", is_=(ROUTE, DENY)) == "AuthorizationPolicy shop/only-orders (1.yaml:2)"
    assert because("/", was=(ROUTE, DENY), is_=()) == "AuthorizationPolicy shop/only-orders (1.yaml:2)"


def test_no_object_is_returned_if_only_one_changed():
    case = RequestCase(Where(), "frontend", "http://payments/", "shop")
    before = Stage(with_objects())
    assert turned_by(before, Stage(with_objects(DENY)), case, NOW) == ""
    blamed = turned_by(before, Stage(with_objects(ROUTE, DENY)), case, NOW)
    assert blamed == "AuthorizationPolicy shop/only-orders (1.yaml:2)"


CALLER = """
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: shell, namespace: shop, labels: {app: shell}}
spec: {command: [serve]}
"""


def of_caller(*, was=(), is_=(), caller="shell-0.shop"):
    """The object that is responsible if the pod of CALLER exists only before or only after the change."""
    stages = []
    for texts in (was, is_):
        mesh = with_objects(*texts)
        if CALLER in texts:
            put(mesh, instance("shell-0", "shell", address="10.244.0.9", meshed=True, workload="shell"))
        stages.append(Stage(mesh))
    before, after = stages
    case = RequestCase(Where(), caller, "http://payments/", "shop")
    attribution = Attribution(before, edits(before.mesh, after.mesh), NOW)
    return attribution.of(case, judged(before, case, NOW), judged(after, case, NOW))


@pytest.mark.parametrize("caller", ["shell-0.shop", "shell", "shop/shell", "deploy/shell"])
def test_a_caller_that_was_added_or_removed_is_the_cause_itself(caller):
    blamed = "Workload shop/shell (0.yaml:2)"
    assert of_caller(was=(CALLER, DENY, ROUTE), is_=(), caller=caller) == blamed
    assert of_caller(was=(), is_=(CALLER, DENY, ROUTE), caller=caller) == blamed


def test_a_removed_caller_without_an_object_has_no_responsible_object():
    before, after = with_objects(ROUTE), with_objects()
    put(before, instance("shell-0", "shell", address="10.244.0.9", meshed=True, workload="shell"))
    case = RequestCase(Where(), "shell", "http://payments/", "shop")
    was, is_ = (judged(Stage(mesh), case, NOW) for mesh in (before, after))
    assert was.explanation is not None and is_.explanation is None
    assert Attribution(Stage(before), edits(before, after), NOW).of(case, was, is_) == ""
