import pytest
from envoy.extensions.filters.http.cors.v3.cors_pb2 import CorsPolicy
from envoy.extensions.filters.http.fault.v3.fault_pb2 import HTTPFault
from google.protobuf.json_format import ParseDict

from weft.explain.decision import Kind, Unsure
from weft.explain.fault import inject, preflight
from weft.explain.request import RequestHeaders
from weft.explain.walk import Walk, every


def _outcomes(**fault):
    config = ParseDict(fault, HTTPFault())
    explained = every(lambda walk: inject(walk, config, ()) or walk.end(Kind.DELIVERED, ""))
    return [(round(each.odds, 2), each.verdict.status, each.verdict.delay) for each in explained.outcomes]


def test_faults_apply_to_their_percentage():
    half = {"numerator": 50}
    assert _outcomes(abort={"http_status": 418, "percentage": half}) == [(0.5, 418, 0.0), (0.5, 0, 0.0)]
    delay = {"fixed_delay": "2s", "percentage": {"numerator": 250_000, "denominator": "MILLION"}}
    assert _outcomes(delay=delay) == [(0.75, 0, 0.0), (0.25, 0, 2.0)]
    assert _outcomes(delay=delay, abort={"http_status": 500, "percentage": {"numerator": 100}}) == [
        (0.75, 500, 0.0),
        (0.25, 500, 2.0),
    ]


@pytest.mark.parametrize(("grpc", "status"), [(True, 14), (False, 0)])
def test_a_grpc_fault_is_200_and_only_grpc_callers_get_its_status(grpc, status):
    config = ParseDict({"abort": {"grpc_status": 14, "percentage": {"numerator": 100}}}, HTTPFault())
    walk = Walk()
    walk.grpc = grpc
    verdict = inject(walk, config, ())
    assert (verdict.status, verdict.grpc_status, verdict.flags) == (200, status, "FI")


@pytest.mark.parametrize("fault", [{"abort": {"header_abort": {}}}, {"delay": {"header_delay": {}}}])
def test_faults_controlled_by_headers_are_unknown(fault):
    with pytest.raises(Unsure):
        inject(Walk(), ParseDict(fault, HTTPFault()), ())


def _preflight(policy, **headers):
    given = RequestHeaders(
        [(":method", "OPTIONS"), *((name.replace("_", "-"), value) for name, value in headers.items())]
    )
    config = ParseDict({"allow_origin_string_match": [{"exact": "https://a"}], **policy}, CorsPolicy())
    return preflight(Walk(), config, given, ())


def test_a_preflight_gets_a_response_unless_it_is_forwarded():
    asked = {"origin": "https://a", "access_control_request_method": "GET"}
    assert _preflight({}, **asked).detail == "cors_response"
    assert _preflight({}, **(asked | {"origin": "https://b"})).status == 200
    forward = {"forward_not_matching_preflights": True}
    assert _preflight(forward, **(asked | {"origin": "https://b"})) is None
    assert _preflight({}, origin="https://a") is None
    star = {"allow_origin_string_match": [{"prefix": "*"}]}
    assert _preflight(forward | star, **asked).detail == "cors_response"
