import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.inject.review import VERSION, AdmissionResponse, BadReview, decode, encode

REVIEW = {
    "apiVersion": VERSION,
    "kind": "AdmissionReview",
    "request": {
        "uid": "705ab4f5",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": "shop",
        "object": {"kind": "Pod"},
        "dryRun": True,
        "userInfo": {"username": "system:admin"},
    },
}


def test_a_review_is_read_and_what_is_not_needed_passed_over():
    request = decode(json.dumps(REVIEW).encode())
    assert (request.uid, request.kind.kind, request.operation, request.namespace) == (
        "705ab4f5",
        "Pod",
        "CREATE",
        "shop",
    )
    assert request.object == {"kind": "Pod"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not an AdmissionReview"),
        (b"{", "not an AdmissionReview"),
        (b"\xff\xfe", "not an AdmissionReview"),
        (b"[]", "expected `object`"),
        (b"{}", "missing required field"),
        (b"[" * 100_000, "not an AdmissionReview"),
        (
            json.dumps({**REVIEW, "apiVersion": "admission.k8s.io/v1beta1"}).encode(),
            "not AdmissionReview of admission.k8s.io/v1beta1",
        ),
        (json.dumps({**REVIEW, "kind": "Pod"}).encode(), "not Pod of"),
        (json.dumps({**REVIEW, "request": None}).encode(), "has no request"),
        (json.dumps({**REVIEW, "request": {"uid": "1", "object": []}}).encode(), "expected `object | null`"),
        (json.dumps({**REVIEW, "request": {"uid": "1", "kind": "Pod"}}).encode(), "expected `object`"),
    ],
)
def test_an_invalid_review_is_rejected_with_the_reason(body, words):
    with pytest.raises(BadReview) as error:
        decode(body)
    assert words.lower() in str(error.value).lower()


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_a_bad_review(body):
    with pytest.raises(BadReview):
        decode(body)


def test_a_response_carries_the_patch_in_base64():
    operations = ({"op": "add", "path": "/a", "value": "ü"},)
    response = json.loads(encode("1", AdmissionResponse(allowed=True, patch=operations)))["response"]
    assert (response["uid"], response["allowed"], response["patchType"]) == ("1", True, "JSONPatch")
    assert json.loads(base64.b64decode(response["patch"])) == list(operations)
    assert "status" not in response


def test_without_a_change_there_is_no_patch():
    assert json.loads(encode("1", AdmissionResponse(allowed=True)))["response"] == {"uid": "1", "allowed": True}


def test_a_denial_has_a_message_and_a_code():
    answer = AdmissionResponse(allowed=False, message="why", code=422, warnings=("w" * 300,))
    response = json.loads(encode("1", answer))["response"]
    assert response["status"] == {"status": "Failure", "message": "why", "reason": "Invalid", "code": 422}
    assert len(response["warnings"][0]) == 256


@pytest.mark.parametrize("request_", [{"uid": ""}, {}])
def test_a_review_without_a_uid_is_read_as_istioctl_sends_it(request_):
    assert decode(json.dumps({**REVIEW, "request": request_}).encode()).uid == ""
