"""Reads weft's own RequestTest: requests and their expected outcome, for `weft test`. It has no effect on a running
mesh."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from weft.api.document import Document
from weft.api.metadata import read_metadata
from weft.api.reader import Fields, root_of
from weft.api.report import DocumentReport
from weft.base.problem import Problem, Where

KIND = "RequestTest"
VERSION = "weft.dev/v1alpha1"
_VERDICTS = ("allowed", "denied", "answered", "failed")
_MOST = 8_192  # characters of a URL or a header


class RequestCase(msgspec.Struct, frozen=True):
    where: Where
    caller: str
    to: str
    namespace: str = ""
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    claims: str = ""  # claims of the request's token, as JSON
    verdict: str = ""
    status: int = 0
    workload: str = ""
    subset: str = ""
    path: str = ""
    odds: float = 100.0
    source: str = ""  # address of a caller outside the mesh, for gateways

    def __str__(self) -> str:
        return f"{self.caller} {self.method} {self.to}"


def read_request_test(document: Document) -> tuple[list[RequestCase], tuple[Problem, ...]]:
    """Return the test cases of a document and its problems; no cases if a problem is an error."""
    report = DocumentReport(document)
    if document.api_version != VERSION:
        report.error(("apiVersion",), f"the apiVersion of RequestTest is {VERSION}, not {document.api_version[:80]}")
        return [], report.finish()
    root = root_of(report)
    meta = read_metadata(root, document, "cluster.local")
    spec = root.fields("spec", required=True)
    cases = [_case(each, meta.namespace) for each in spec.items("requests", required=True)] if spec else []
    problems = report.finish()
    return ([] if report.failed else cases), problems


def _case(fields: Fields, namespace: str) -> RequestCase:
    claims: Mapping[str, Any] = fields.raw("jwt") if fields.has("jwt") else {}
    if not isinstance(claims, Mapping):
        fields.error(
            "jwt",
            "`jwt`, the claims of a token, must be a mapping",
            'for example: jwt: {iss: "https://issuer.example"}',
        )
        claims = {}
    case = RequestCase(
        where=Where(fields.report.document.file, fields.line, str(fields.report.document.key)),
        caller=fields.text("from", required=True, most=253),
        to=fields.text("to", required=True, most=_MOST),
        namespace=namespace,
        method=fields.text("method", default="GET", most=40).upper(),
        headers=tuple(fields.string_map("headers").items()),
        claims=json.dumps(claims, default=str) if claims else "",
        source=fields.address("sourceAddress"),
    )
    return _expected(fields, case)


def _expected(fields: Fields, case: RequestCase) -> RequestCase:
    if isinstance(fields.raw("expect"), str):
        return msgspec.structs.replace(case, verdict=fields.choice("expect", _VERDICTS))
    expect = fields.fields("expect", required=True)
    if expect is None:
        return case
    odds = expect.number("odds", least=0, most=100)
    return msgspec.structs.replace(
        case,
        verdict=expect.choice("verdict", _VERDICTS),
        status=expect.integer("status", least=100, most=599) or 0,
        workload=expect.text("workload", most=253),
        subset=expect.text("subset", most=253),
        path=expect.text("path", most=_MOST),
        odds=100.0 if odds is None else odds,
    )
