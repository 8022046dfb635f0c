import base64
import json

import pytest
from envoy.extensions.filters.http.jwt_authn.v3.config_pb2 import JwtAuthentication
from google.protobuf.json_format import ParseDict

from weft.explain.jwt import FILTER, read_token, refused
from weft.explain.listener import Connection
from weft.explain.request import Request, Speaks, Token, headers_of
from weft.explain.rule import Seen
from weft.explain.walk import Walk

NOW = 1_000_000
GOOD = Token(
    "good", {"iss": "me", "sub": "alice", "exp": NOW + 60, "scope": "read write", "n": 3, "role": {"name": "boss"}}
)


def _provider(issuer="me", **more):
    return {"issuer": issuer, "payload_in_metadata": "payload", **more}


def _config(requires=None, **providers):
    wanted = {
        "requires_any": {"requirements": [*({"provider_name": name} for name in providers), {"allow_missing": {}}]}
    }
    rule = {"match": {"prefix": ""}, "requires": requires or wanted}
    return ParseDict({"providers": providers, "rules": [rule], "bypass_cors_preflight": True}, JwtAuthentication())


def _ask(config, *tokens, method="GET", path="/a", **headers):
    given = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    request = Request(host="orders", method=method, path=path, headers=given, tokens=tokens, now=NOW)
    seen = Seen(Connection("10.0.0.9", "10.0.0.1", 80, Speaks.HTTP), headers=headers_of(request))
    return refused(Walk(), config, request, seen), seen


def test_a_good_token_is_believed_and_what_it_says_is_known():
    result, seen = _ask(_config(p=_provider()), GOOD, authorization="Bearer good")
    assert result is None and seen.metadata[FILTER]["payload"]["sub"] == "alice"
    assert not seen.headers.has("authorization")


def test_a_missing_token_passes_where_it_may_be_missing():
    result, seen = _ask(_config(p=_provider()))
    assert result is None and FILTER not in seen.metadata
    strict = _config({"provider_name": "p"}, p=_provider())
    assert _ask(strict)[0].why == "Jwt is missing"


@pytest.mark.parametrize(
    ("token", "provider", "status", "why"),
    [
        (Token("good", GOOD.claims, verified=False), {}, 401, "Jwt verification fails"),
        (Token("good", {**GOOD.claims, "exp": NOW - 61}), {}, 401, "Jwt is expired"),
        (Token("good", {**GOOD.claims, "nbf": NOW + 61}), {}, 401, "Jwt not yet valid"),
        (Token("good", {**GOOD.claims, "iss": "you"}), {}, 401, "Jwt issuer is not configured"),
        (GOOD, {"audiences": ["orders"]}, 403, "Audiences in Jwt are not allowed"),
        (Token("good", malformed="Jwt header is an invalid JSON"), {}, 401, "Jwt header is an invalid JSON"),
    ],
)
def test_a_bad_token_is_refused_with_envoys_words(token, provider, status, why):
    result, _ = _ask(_config(p=_provider(**provider)), token, authorization="Bearer good")
    assert (result.status, result.why) == (status, why)
    assert result.detail == f"jwt_authn_access_denied{{{why.replace(' ', '_')}}}"


def test_a_clock_that_is_a_minute_off_is_forgiven():
    late = Token("good", {**GOOD.claims, "exp": NOW - 59})
    assert _ask(_config(p=_provider()), late, authorization="Bearer good")[0] is None


def test_audiences_are_compared_without_scheme_and_slash():
    token = Token("good", {**GOOD.claims, "aud": ["x", "https://orders/"]})
    assert _ask(_config(p=_provider(audiences=["orders"])), token, authorization="Bearer good")[0] is None


def test_tokens_are_looked_for_where_the_provider_says():
    for places, asked in (
        ({"from_headers": [{"name": "x-token"}]}, {"x_token": "good"}),
        ({"from_params": ["t"]}, {"path": "/a?t=good"}),
        ({"from_cookies": ["c"]}, {"cookie": "a=b; c=good"}),
        ({}, {"path": "/a?z&b=%61&access_token=good"}),
    ):
        result, seen = _ask(_config(p=_provider(**places)), GOOD, **asked)
        assert result is None and FILTER in seen.metadata, places
    assert seen.headers.value(":path") == "/a?b=a&z="


def test_claims_become_headers_and_the_callers_own_never_do():
    provider = _provider(
        claim_to_headers=[{"claim_name": name, "header_name": f"x-{name[0]}"} for name in ("sub", "n", "role.name")],
        forward=True,
        forward_payload_header="x-payload",
    )
    _, seen = _ask(_config(p=provider), GOOD, authorization="Bearer good", x_s="forged")
    assert [seen.headers.value(f"x-{each}") for each in "snr"] == ["alice", "3", "boss"]
    assert seen.headers.has("authorization") and seen.headers.has("x-payload")


def test_claims_with_spaces_are_lists_where_it_is_said():
    provider = _provider(normalize_payload_in_metadata={"space_delimited_claims": ["scope"]})
    _, seen = _ask(_config(p=provider), GOOD, authorization="Bearer good")
    assert seen.metadata[FILTER]["payload"]["scope"] == ["read", "write"]


def test_a_token_of_the_second_provider_is_believed_too():
    other = Token("good", {**GOOD.claims, "iss": "you"})
    assert _ask(_config(p=_provider(), q=_provider("you")), other, authorization="Bearer good")[0] is None


def test_all_requirements_hold_together():
    each = [{"provider_name": "p"}, {"provider_name": "q"}]
    config = _config(
        {"requires_all": {"requirements": each}},
        p=_provider(),
        q=_provider("you", from_headers=[{"name": "x-token"}]),
    )
    assert _ask(config, GOOD, authorization="Bearer good")[0].why == "Jwt is missing"


def test_a_preflight_needs_no_token():
    config = _config({"provider_name": "p"}, p=_provider())
    asked = {"origin": "https://a", "access_control_request_method": "GET"}
    assert _ask(config, method="OPTIONS", **asked)[0] is None
    assert _ask(config, method="OPTIONS", origin="https://a")[0] is not None


def test_a_token_that_nobody_told_of_is_read_as_it_is():
    def part(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    text = f"{part({'alg': 'RS256'})}.{part({'iss': 'me'})}.e30"
    assert read_token(text).claims == {"iss": "me"} and not read_token(text).malformed
    assert "3 sections" in read_token("a.b").malformed
    assert read_token("e30.e30.e30").malformed.startswith("Jwt header [alg]")
    assert read_token(f"{part({'alg': 'RS256'})}.YQ.e30").malformed == "Jwt payload is an invalid JSON"
    assert read_token("Token e30.e30.e30").malformed == "Jwt header is an invalid JSON"  # without the space
    assert read_token("a=.b.c").malformed == "Jwt header is an invalid Base64url encoded"


@pytest.mark.parametrize("signed", [True, False])
def test_of_a_whole_token_it_is_said_that_nobody_checks_its_signature(signed):
    token = Token("good", GOOD.claims, signed=signed)
    request = Request(host="orders", headers=(("authorization", "Bearer good"),), tokens=(token,), now=NOW)
    walk = Walk()
    seen = Seen(Connection("10.0.0.9", "10.0.0.1", 80, Speaks.HTTP), headers=headers_of(request))
    assert refused(walk, _config(p=_provider()), request, seen) is None
    assert walk.steps[-1].what.endswith("is believed: its signature is not checked here") is signed
    assert read_token(f"{_part({'alg': 'RS256'})}.{_part({'iss': 'me'})}.c2ln").signed


def test_a_payload_that_is_nested_too_deeply_is_no_token():
    nested = base64.urlsafe_b64encode(b'{"a":' + b"[" * 200_000).decode().rstrip("=")
    assert read_token(f"{_part({'alg': 'RS256'})}.{nested}.c2ln").malformed == "Jwt payload is an invalid JSON"


def _part(claims):
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
