"""Answers an AdmissionReview about one of the mesh's own objects. The object is parsed in the same way as an object
from a file, and an invalid one is rejected with the messages of `weft validate`.

An object that is already stored may be relabelled or deleted even if its spec is invalid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.analyze.finding import coded
from weft.api.document import Document
from weft.api.kinds import key_kind
from weft.api.parse import KINDS, parse
from weft.base.problem import Problem, Severity
from weft.inject.json_patch import same
from weft.inject.review import AdmissionRequest, AdmissionResponse
from weft.model.names import ObjectKey


def validate(request: AdmissionRequest, domain: str = "cluster.local") -> AdmissionResponse:
    body = request.object
    if request.operation not in ("CREATE", "UPDATE") or body is None:
        return AdmissionResponse(allowed=True)
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping) and metadata.get("deletionTimestamp"):
        return AdmissionResponse(allowed=True)
    document = _document(request, body)
    problems = tuple(map(coded, parse(document, domain).problems))
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    # A kind that weft does not know may be known to a newer weft.
    tolerated = document.key.kind not in KINDS or _unchanged(request.old_object, body)
    if not errors or tolerated:
        return AdmissionResponse(allowed=True, warnings=tuple(map(str, problems)))
    others = tuple(str(problem) for problem in problems if problem.severity is not Severity.ERROR)
    return AdmissionResponse(allowed=False, message=_message(errors), code=422, warnings=others)


def _document(request: AdmissionRequest, body: Mapping[str, Any]) -> Document:
    kind, version = body.get("kind"), body.get("apiVersion")
    named = request.kind
    metadata = body.get("metadata")
    fields = metadata if isinstance(metadata, Mapping) else {}
    name = request.name or fields.get("name") or fields.get("generateName") or ""
    api_version = f"{named.group}/{named.version}" if named.group else named.version
    api_version = version if isinstance(version, str) else api_version
    key = ObjectKey(
        key_kind(api_version, kind if isinstance(kind, str) else named.kind),
        request.namespace or str(fields.get("namespace") or ""),
        str(name),
    )
    return Document(key, api_version, body)


def _unchanged(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> bool:
    return before is not None and all(same(before.get(field), after.get(field)) for field in ("apiVersion", "spec"))


def _message(errors: list[Problem]) -> str:
    return "\n".join(map(str, errors))
