import pytest

from weft.analyze.finding import coded
from weft.api.document import Document
from weft.api.parse import parse
from weft.inject.review import AdmissionRequest, ReviewedKind
from weft.inject.validation import validate
from weft.model.names import ObjectKey

GOOD = {"hosts": ["web"], "http": [{"route": [{"destination": {"host": "web"}}]}]}
BAD = {"hosts": ["web"], "http": [{"route": [{"destination": {"host": "web"}, "weight": "much"}], "retires": {}}]}


def virtual_service(spec, version="networking.istio.io/v1", **metadata):
    return {
        "apiVersion": version,
        "kind": "VirtualService",
        "metadata": {"name": "web", "namespace": "shop", **metadata},
        "spec": spec,
    }


def asked(body, operation="CREATE", old=None, kind="VirtualService"):
    named = ReviewedKind("networking.istio.io", "v1", kind)
    return AdmissionRequest("1", named, operation, "web", "shop", body, old)


def test_a_good_object_passes():
    assert validate(asked(virtual_service(GOOD))).allowed


def test_an_invalid_object_is_rejected_with_the_errors_of_weft_validate():
    body = virtual_service(BAD)
    answer = validate(asked(body))
    problems = parse(Document(ObjectKey("VirtualService", "shop", "web"), body["apiVersion"], body)).problems
    assert len(problems) == 2
    assert not answer.allowed
    assert answer.message == "\n".join(str(coded(problem)) for problem in problems)
    assert answer.code == 422


def test_warnings_are_returned_to_the_client():
    body = virtual_service({**GOOD, "gateways": ["mesh"]}, version="networking.istio.io/v9")
    answer = validate(asked(body))
    assert not answer.allowed
    assert "no version `networking.istio.io/v9`" in answer.message


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT", ""])
def test_other_operations_than_create_and_update_are_allowed(operation):
    assert validate(asked(virtual_service(BAD), operation)).allowed
    assert validate(asked(None)).allowed


def test_a_stored_invalid_object_may_be_relabelled_or_deleted():
    old = virtual_service(BAD)
    answer = validate(asked(virtual_service(BAD, labels={"a": "b"}), "UPDATE", old))
    assert answer.allowed and answer.warnings
    assert validate(asked(virtual_service(BAD, deletionTimestamp="2026-01-01T00:00:00Z"), "UPDATE")).allowed
    assert not validate(asked(virtual_service({**BAD, "hosts": ["b"]}), "UPDATE", old)).allowed


def test_a_kind_that_only_a_newer_weft_knows_passes_with_a_warning():
    body = {"apiVersion": "networking.istio.io/v1", "kind": "Teleport", "metadata": {"name": "web"}, "spec": {}}
    answer = validate(asked(body, kind="Teleport"))
    assert answer.allowed
    assert "unknown kind `Teleport`" in answer.warnings[0]


@pytest.mark.parametrize(
    "body", [{}, {"metadata": []}, {"spec": 1}, {"kind": 1, "apiVersion": 2, "metadata": {"name": 3}}]
)
def test_a_malformed_object_is_rejected_without_a_crash(body):
    assert not validate(asked(body)).allowed
