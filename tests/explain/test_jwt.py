import time

import pytest
from envoy.extensions.filters.http.jwt_authn.v3.config_pb2 import JwtAuthentication
from google.protobuf.json_format import ParseDict

from translate import tokens
from weft.explain import text
from weft.explain.decision import Kind
from weft.explain.jwt import FILTER, refused
from weft.explain.listener import IncomingConnection
from weft.explain.request import Request, Speaks, Token, headers_of
from weft.explain.rule import GuardInput
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
    seen = GuardInput(IncomingConnection("10.0.0.9", "10.0.0.1", 80, Speaks.HTTP), headers=headers_of(request))
    return refused(Walk(), config, request, seen), seen


def test_a_valid_token_is_accepted_and_its_claims_are_in_the_metadata():
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
def test_an_invalid_token_is_rejected_with_envoys_error(token, provider, status, why):
    result, _ = _ask(_config(p=_provider(**provider)), token, authorization="Bearer good")
    assert (result.status, result.why) == (status, why)
    assert result.detail == f"jwt_authn_access_denied{{{why.replace(' ', '_')}}}"


def test_a_clock_skew_of_a_minute_is_accepted():
    late = Token("good", {**GOOD.claims, "exp": NOW - 59})
    assert _ask(_config(p=_provider()), late, authorization="Bearer good")[0] is None


def test_audiences_are_compared_without_scheme_and_slash():
    token = Token("good", {**GOOD.claims, "aud": ["x", "https://orders/"]})
    assert _ask(_config(p=_provider(audiences=["orders"])), token, authorization="Bearer good")[0] is None


def test_tokens_are_read_from_the_providers_locations():
    for places, asked in (
        ({"from_headers": [{"name": "x-token"}]}, {"x_token": "good"}),
        ({"from_params": ["t"]}, {"path": "/a?t=good"}),
        ({"from_cookies": ["c"]}, {"cookie": "a=b; c=good"}),
        ({}, {"path": "/a?z&b=%61&access_token=good"}),
    ):
        result, seen = _ask(_config(p=_provider(**places)), GOOD, **asked)
        assert result is None and FILTER in seen.metadata, places
    assert seen.headers.value(":path") == "/a?b=a&z="


def test_claims_become_headers_and_replace_the_callers():
    provider = _provider(
        claim_to_headers=[{"claim_name": name, "header_name": f"x-{name[0]}"} for name in ("sub", "n", "role.name")],
        forward=True,
        forward_payload_header="x-payload",
    )
    _, seen = _ask(_config(p=provider), GOOD, authorization="Bearer good", x_s="forged")
    assert [seen.headers.value(f"x-{each}") for each in "snr"] == ["alice", "3", "boss"]
    assert seen.headers.has("authorization") and seen.headers.has("x-payload")


def test_space_delimited_claims_become_lists_where_configured():
    provider = _provider(normalize_payload_in_metadata={"space_delimited_claims": ["scope"]})
    _, seen = _ask(_config(p=provider), GOOD, authorization="Bearer good")
    assert seen.metadata[FILTER]["payload"]["scope"] == ["read", "write"]


def test_a_token_of_the_second_provider_is_accepted():
    other = Token("good", {**GOOD.claims, "iss": "you"})
    assert _ask(_config(p=_provider(), q=_provider("you")), other, authorization="Bearer good")[0] is None


def test_requires_all_needs_every_token():
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


FETCHED = {"remote_jwks": {"http_uri": {"uri": "https://me.example/keys"}}}


def _told(provider, text, **more):
    request = Request(host="orders", headers=(("authorization", f"Bearer {text}"),), now=int(time.time()), **more)
    walk = Walk()
    seen = GuardInput(IncomingConnection("10.0.0.9", "10.0.0.1", 80, Speaks.HTTP), headers=headers_of(request))
    return refused(walk, _config(p=provider), request, seen), walk


def test_a_real_token_is_verified_with_inline_keys_whatever_the_request_claims():
    provider = _provider(tokens.ISSUER, local_jwks={"inline_string": tokens.key_set(rsa=tokens.RSA_KEY)})
    believed, walk = _told(provider, tokens.token())
    assert believed is None and walk.steps[-1].what == f"the token of {tokens.ISSUER} is accepted"
    assert not walk.provided
    forged = tokens.token(tokens.OTHER_KEY)
    said = (Token(forged, {"iss": tokens.ISSUER}, signed=True),)
    assert _told(provider, forged, tokens=said)[0].why == "Jwt verification fails"
    assert _told(provider, "no.token.1", tokens=(Token("no.token.1", signed=True),))[0].status == 401


def test_with_remote_keys_step_and_verdict_state_that_the_signature_is_unchecked():
    believed, walk = _told(_provider(tokens.ISSUER, **FETCHED), tokens.token(tokens.OTHER_KEY))
    assert believed is None
    assert walk.steps[-1].what.endswith(
        "is accepted: its signature is not checked here, because the keys are fetched from https://me.example/keys"
    )
    verdict = walk.end(Kind.DELIVERED, "the call reaches orders-0")
    assert (
        verdict.provided
        == f"the token's signature is valid, which was not checked: the keys of {tokens.ISSUER} are not available here"
    )
    assert text.verdict(verdict) == f"delivered: the call reaches orders-0, provided that {verdict.provided}"


def test_claims_without_a_token_mention_no_keys():
    claims = Token("good", {"iss": "me", "sub": "alice"})
    believed, walk = _told(_provider(**FETCHED), "good", tokens=(claims,))
    assert believed is None and not walk.provided
    assert walk.steps[-1].what == "the token of me is accepted"


def test_an_expiry_of_0_is_not_checked():
    endless = Token("good", {**GOOD.claims, "exp": 0})
    assert _ask(_config(p=_provider()), endless, authorization="Bearer good")[0] is None
