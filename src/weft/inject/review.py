"""AdmissionReview v1, which the API server and a webhook exchange: parses the API server's request, and serializes the
webhook's response.

Any body gives either an AdmissionRequest or a BadReview with the reason. A response always has the request's uid,
because the API server rejects a response without it. `istioctl kube-inject` sends reviews as well, without a uid.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from weft.inject.json_patch import Operation

VERSION = "admission.k8s.io/v1"
_MOST_WARNING = 256  # characters; the API server truncates longer warnings
_MOST_MESSAGE = 32_768


class BadReview(Exception):
    """The body is not a valid AdmissionReview, so the sender is not the API server, or not a working one."""


class ReviewedKind(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    kind: ReviewedKind = ReviewedKind()
    operation: str = ""
    name: str = ""
    namespace: str = ""
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None


class AdmissionResponse(msgspec.Struct, frozen=True, kw_only=True):
    allowed: bool
    patch: tuple[Operation, ...] = ()
    message: str = ""
    code: int = 403
    warnings: tuple[str, ...] = ()


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: AdmissionRequest | None = None


def decode(body: bytes) -> AdmissionRequest:
    try:
        review = msgspec.json.decode(body, type=_Review)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadReview(f"the body is not an AdmissionReview: {error}") from None
    if review.kind != "AdmissionReview" or review.api_version != VERSION:
        actual = f"{review.kind} of {review.api_version}"[:200]
        raise BadReview(f"expected AdmissionReview of {VERSION}, not {actual}")
    if review.request is None:
        raise BadReview("the AdmissionReview has no request")
    return review.request


def encode(uid: str, answer: AdmissionResponse) -> bytes:
    response: dict[str, Any] = {"uid": uid, "allowed": answer.allowed}
    if answer.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(answer.patch)).decode()
    if answer.warnings:
        response["warnings"] = [_short(each, _MOST_WARNING) for each in answer.warnings]
    if not answer.allowed:
        reason = {403: "Forbidden", 422: "Invalid"}.get(answer.code, "InternalError")
        message = _short(answer.message, _MOST_MESSAGE)
        response["status"] = {"status": "Failure", "message": message, "reason": reason, "code": answer.code}
    return msgspec.json.encode({"apiVersion": VERSION, "kind": "AdmissionReview", "response": response})


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
