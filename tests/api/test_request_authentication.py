import json
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.reading import document, istio, read, told, value
from api.test_key_set import RSA_PUBLIC, of
from weft.api.document import Document
from weft.api.parse import parse
from weft.model.request_authentication import KeyServer, TokenHeader

KEYS = of(RSA_PUBLIC)


def written(spec, name="tokens"):
    return istio("RequestAuthentication", spec, name).replace("networking.istio.io", "security.istio.io")


def rule(text="", keys=f"jwks: '{KEYS}'", selector="selector: {matchLabels: {app: orders}}, "):
    more = f", {text}" if text else ""
    return written(f"{{{selector}jwtRules: [{{issuer: https://login.example.com, {keys}{more}}}]}}")


def problems(*arguments, **more):
    return [problem.split(" ", 1)[1] for problem in told(rule(*arguments, **more))]


def test_reads_all_of_a_rule():
    found = value(
        written(
            f"""
            selector: {{matchLabels: {{app: orders}}}}
            jwtRules:
            - issuer: partner@example.org
              audiences: [orders, shop]
              jwks: '{KEYS}'
              fromHeaders: [{{name: X-Jwt, prefix: "Token "}}, {{name: x-alt}}]
              fromParams: [access]
              fromCookies: [jwt]
              forwardOriginalToken: true
              outputPayloadToHeader: X-Claims
              outputClaimToHeaders: [{{header: X-Sub, claim: sub}}, {{header: x-team, claim: org.team}}]
              spaceDelimitedClaims: [roles]
              timeout: 3s
            """
        )
    )
    assert found.selector == (("app", "orders"),)
    assert not found.refused
    (only,) = found.rules
    assert only.issuer == "partner@example.org"
    assert only.audiences == ("orders", "shop")
    assert json.loads(only.jwks) == {"keys": [RSA_PUBLIC]}
    assert only.from_headers == (TokenHeader("x-jwt", "Token "), TokenHeader("x-alt"))
    assert (only.from_params, only.from_cookies) == (("access",), ("jwt",))
    assert only.forward_original_token
    assert only.output_payload_header == "x-claims"
    assert only.claims_to_headers == (("sub", "x-sub"), ("org.team", "x-team"))
    assert only.space_delimited_claims == ("roles",)
    assert only.timeout == timedelta(seconds=3)
    assert only.line == 7


@pytest.mark.parametrize(
    ("uri", "server"),
    [
        ("https://login.example.com/keys?v=2", ("login.example.com", 443, True, False)),
        ("https://login.example.com:8443/keys", ("login.example.com", 8443, True, False)),
        ("https://[2001:db8::1]/keys", ("2001:db8::1", 443, True, False)),
        ("http://10.0.0.7:8080/keys", ("10.0.0.7", 8080, False, False)),
        ("http://keycloak/keys", ("keycloak.shop.svc.cluster.local", 80, False, True)),
        ("http://keycloak.login.svc:8080/keys", ("keycloak.login.svc.cluster.local", 8080, False, True)),
        ("http://keycloak.login.svc.cluster.local./keys", ("keycloak.login.svc.cluster.local", 80, False, True)),
        ("http://keycloak.login/keys", ("keycloak.login", 80, False, False)),
        ("https://keycloak.login.svc/keys", ("keycloak.login.svc.cluster.local", 443, True, False)),
    ],
)
def test_reads_where_keys_are_fetched(uri, server):
    (only,) = value(rule(keys=f"jwksUri: '{uri}'")).rules
    assert only.key_server == KeyServer(uri, *server)


def test_plaintext_keys_get_a_warning_unless_the_mesh_carries_them():
    (warning,) = problems(keys="jwksUri: 'http://login.example.com/keys'")
    assert "warning: the keys are fetched in plaintext" in warning
    assert problems(keys="jwksUri: 'http://keycloak/keys'") == []
    (warning,) = problems(keys="jwksUri: 'https://keycloak/keys'")
    assert "bypasses the proxy of the service" in warning


@pytest.mark.parametrize(
    "uri",
    [
        "login.example.com/keys",
        "ftp://login.example.com/keys",
        "file:///etc/passwd",
        "unix:///run/admin.sock",
        "https://",
        "https:///keys",
        "https://login.example.com:0/keys",
        "https://login.example.com:99999/keys",
        "https://login.example.com:a/keys",
        "https://[::1/keys",
        "https://login..example.com/keys",
        "https://login_example.com/keys",
        "https://lögin.example.com/keys",
        "https://user:secret@login.example.com/keys",
        "https://login.example.com/keys#one",
        "https://login.example.com/a b",
        "",
    ],
)
def test_rejects_an_invalid_jwks_uri(uri):
    found = problems(keys=f"jwksUri: '{uri}'")
    assert len(found) == 1
    assert not found[0].startswith("warning")
    assert "secret" not in found[0]


def test_keys_are_not_discovered_at_the_issuer():
    assert problems(keys="audiences: [a]") == [
        "the rule has neither `jwks` nor `jwksUri`, and weft does not discover the keys of an issuer (set `jwksUri` to the "
        "`jwks_uri` that https://login.example.com/.well-known/openid-configuration names)"
    ]


def test_inline_keys_have_precedence_over_fetched_ones():
    text = rule(keys=f"jwks: '{KEYS}', jwksUri: 'https://a.b/c'")
    assert value(text).rules[0].key_server is None
    assert ["`jwksUri` is not used" in each for each in told(text)] == [True]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("audiences: ['']", "`audiences` must not be empty text"),
        ("fromHeaders: [x-jwt]", "an item of `fromHeaders` must be a mapping"),
        ("fromHeaders: [{prefix: a}]", "`name` is required"),
        ("fromHeaders: [{name: 'a b'}]", "`a b` is not a header name"),
        ("fromHeaders: [{name: ':path'}]", "`:path` is not a header name"),
        ('fromHeaders: [{name: a, prefix: "a\\nb"}]', "`prefix` contains a control character"),
        ("fromParams: ['']", "`fromParams` must not be empty text"),
        ("fromCookies: ['']", "`fromCookies` must not be empty text"),
        ("fromCookie: [a]", "unknown field `fromCookie` (did you mean `fromCookies`?)"),
        ("outputPayloadToHeader: ':authority'", "`:authority` is not a header name"),
        ("outputPayloadToHeader: Content-Length", "`content-length` cannot be set from a token"),
        ("outputPayloadToHeader: Authorization", "the token is read from the header `authorization`"),
        ("outputClaimToHeaders: [{claim: a}]", "`header` is required"),
        ("outputClaimToHeaders: [{header: a}]", "`claim` is required"),
        ("outputClaimToHeaders: [{claim: a, header: x}, {claim: b, header: X}]", "`x` is set twice"),
        (
            "fromHeaders: [{name: x-a}], outputClaimToHeaders: [{claim: a, header: X-A}]",
            "the token is read from the header `x-a`",
        ),
        ("timeout: 5", "`timeout` has no unit"),
        ("timeout: 0s", "`timeout` must be at least 1ms"),
        ("forwardOriginalToken: 'yes'", "`forwardOriginalToken` must be true or false"),
        ("presence: REQUIRED", "`presence` is not supported by this version of weft"),
        ("failureMode: IGNORE", "`failureMode` is not supported by this version of weft"),
    ],
)
def test_reports_what_is_wrong_with_a_rule(text, problem):
    (found,) = problems(text)
    assert found.startswith(problem)


@pytest.mark.parametrize("issuer", ["", "issuer: '', ", "issuer: 5, "])
def test_an_issuer_is_required(issuer):
    (found,) = told(written(f"{{jwtRules: [{{{issuer}jwks: '{KEYS}'}}]}}"))
    assert "`issuer`" in found


@pytest.mark.parametrize("issuer", ["", "issuer: '', "])
def test_a_rule_with_jwks_uri_needs_no_issuer(issuer):
    (rule,) = value(written(f"{{jwtRules: [{{{issuer}jwksUri: 'https://a/b'}}]}}")).rules
    assert (rule.issuer, rule.key_server.uri) == ("", "https://a/b")


def test_a_private_key_is_never_repeated():
    found = problems(keys="jwks: '" + of(RSA_PUBLIC | {"d": "c2VjcmV0"}) + "'")
    assert found[0].startswith("key 0 of `jwks` is a private key")
    assert "c2VjcmV0" not in "".join(found)


def test_an_object_without_rules_gets_a_warning():
    text = written("{selector: {matchLabels: {app: orders}}}")
    assert told(text) == ["4 warning: without `jwtRules` a RequestAuthentication checks no token"]
    assert value(text).rules == ()


def test_an_object_with_targets_applies_only_to_that_gateway():
    bound = "targetRefs: [{kind: Gateway, group: gateway.networking.k8s.io, name: edge}]"
    assert value(written(f"{{{bound}, jwtRules: [{{issuer: a, jwksUri: 'https://a/b'}}]}}")).targets == (
        "Gateway edge",
    )
    (found,) = read(written(f"{{{bound}, jwtRules: 5}}")).closed
    assert (found.targets, found.selector, found.refused) == (("Gateway edge",), (), True)
    said = str(
        told(written("{targetRef: {kind: Service, name: web}, jwtRules: [{issuer: a, jwksUri: 'https://a/b'}]}"))
    )
    assert "the policy is NOT enforced" in said


def closed(text):
    parsed = read(text)
    assert parsed.values == ()
    (found,) = parsed.closed
    assert found.refused
    assert (found.name, found.namespace, found.rules) == ("tokens", "shop", ())
    return found.selector


def test_a_rejected_object_closes_the_workloads_it_selects():
    assert closed(rule("fromHeader: []")) == (("app", "orders"),)
    assert closed(rule(selector="")[:-1] + ", a: 1}") == ()


@pytest.mark.parametrize(
    "selector",
    [
        "selector: {matchLabels: {app: 5}}",
        "selector: {matchLabels: {app: 'a b'}}",
        "selector: {matchLabels: {'a b': c}}",
        "selector: {matchLabels: [app]}",
        "selector: {matchLabel: {app: orders}}",
        "selectors: {matchLabels: {app: orders}}",
        "selector: orders",
    ],
)
def test_a_rejected_object_with_an_invalid_selector_closes_the_namespace(selector):
    assert closed(rule(selector=f"{selector}, ")) == ()


def test_an_object_that_cannot_be_parsed_closes_the_namespace():
    assert closed(written("5")) == ()
    assert closed(rule().replace("istio.io/v1", "istio.io/v9")) == ()


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["https://a.b/c", "http://[", "http://a:b", "//", KEYS, '{"keys":[{}]}', "x-a", "\ud800", "1s"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = [
    "issuer",
    "audiences",
    "jwks",
    "jwksUri",
    "fromHeaders",
    "fromParams",
    "fromCookies",
    "outputPayloadToHeader",
    "forwardOriginalToken",
    "outputClaimToHeaders",
    "timeout",
    "spaceDelimitedClaims",
    "presence",
]
RULES = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=8) | st.fixed_dictionaries(
    {"issuer": st.just("a"), "jwks": st.just(KEYS)},
    optional={
        "fromHeaders": st.lists(st.fixed_dictionaries({"name": VALUES}, optional={"prefix": VALUES}), max_size=2),
        "outputClaimToHeaders": st.lists(st.fixed_dictionaries({"claim": VALUES, "header": VALUES}), max_size=2),
        "outputPayloadToHeader": VALUES,
    },
)


@settings(max_examples=300, deadline=None)
@given(
    st.fixed_dictionaries(
        {"jwtRules": st.lists(RULES | VALUES, max_size=3) | VALUES},
        optional={"selector": VALUES | st.fixed_dictionaries({"matchLabels": VALUES}), "targetRefs": VALUES},
    )
)
def test_any_spec_is_accepted_or_rejected_and_closed_but_never_raises(spec):
    original = document(rule())
    body = {**original.body, "spec": spec}
    parsed = parse(Document(original.key, original.api_version, body, original.file, "/x", 1, original.lines))
    failed = any(problem.severity == "error" for problem in parsed.problems)
    assert bool(parsed.closed) == failed
    assert not (failed and parsed.values)
    for found in parsed.values:
        assert all(bool(each.jwks) != bool(each.key_server) for each in found.rules)


def test_keys_written_as_yaml_get_a_hint_how_to_write_them_as_text():
    assert problems(keys=f"jwks: {KEYS}") == [
        "`jwks` must be text that contains JSON (write `jwks: |`, and the JSON indented below it)"
    ]
