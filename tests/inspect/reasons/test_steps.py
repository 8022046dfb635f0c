"""Tests of the files and lines in an explanation, with questions as `weft explain` sends them."""

from datetime import UTC, datetime

from tests.inspect.reasons.told import mesh_of, rule
from tests.inspect.test_stage import DENY

from weft.explain.request import Token
from weft.inspect.ask.answer import answer
from weft.inspect.ask.question import Question
from weft.inspect.stage import Stage

KEY = (
    '{"keys": [{"kid": "k1", "alg": "ES256", "kty": "EC", "crv": "P-256", '
    '"x": "mKe03v0L_Z05aiWI1FhoQNPVjn6xg7EFzhpwYdEXN_A", "y": "i-zzjw6vokuXFEYOP79GTYnDICkcUdKOU-CHPqYWkCg"}]}'
)


def lines(mesh, caller="frontend", to="http://payments/", **more):
    return answer(Stage(mesh), Question(caller, to, **more), datetime.now(UTC)).lines


def line(told, words):
    (found,) = [each for each in told if words in each]
    return found


def security(kind, spec, name="payments"):
    return rule(spec, name=name, kind=kind, group="security")


def test_a_policy_step_has_the_line_of_its_rule():
    assert "[AuthorizationPolicy shop/only-orders rule[0] (deny.yaml:7)]" in line(
        lines(mesh_of(deny=DENY)), "no ALLOW rule"
    )


def test_a_policy_that_denies_nothing_is_named_too():
    spec = "action: DENY\nrules: [{to: [{operation: {paths: [/x]}}]}]"
    told = lines(mesh_of(deny=security("AuthorizationPolicy", spec)))
    assert any(
        "no DENY rule matches  [AuthorizationPolicy shop/payments rule[0] (deny.yaml:6)]" in each for each in told
    )


def test_a_peer_authentication_step_has_its_line():
    mesh = mesh_of(strict=security("PeerAuthentication", "mtls: {mode: STRICT}", "default"))
    found = line(lines(mesh), "the filter chain 0.0.0.0_8080 matches")
    assert "PeerAuthentication shop/default (strict.yaml:1)" in found
    assert "Service shop/payments (service.yaml:2)" in found


def test_a_token_step_names_the_request_authentication_of_its_issuer():
    one = security("RequestAuthentication", f"jwtRules: [{{issuer: them, jwks: '{KEY}'}}]", "one")
    two = security("RequestAuthentication", f"jwtRules: [{{issuer: us, jwks: '{KEY}'}}]", "two")
    mesh = mesh_of(one=one, two=two)
    told = lines(mesh, headers=(("authorization", "Bearer t"),), tokens=(Token("t", {"iss": "us", "sub": "ann"}),))
    assert line(told, "is accepted").endswith("[RequestAuthentication shop/two (two.yaml:1)]")
    without = line(lines(mesh), "the request has no token")
    assert "shop/one (one.yaml:1)" in without and "shop/two (two.yaml:1)" in without


def test_a_step_about_a_hidden_host_has_the_line_of_the_sidecar():
    spec = "egress: [{hosts: ['other/*']}]\noutboundTrafficPolicy: {mode: REGISTRY_ONLY}"
    told = lines(mesh_of(sidecar=rule(spec, name="default", kind="Sidecar")))
    assert any("[Sidecar shop/default (sidecar.yaml:1)]" in each for each in told), told


def test_an_inbound_step_has_the_line_of_the_sidecars_ingress():
    spec = "workloadSelector: {labels: {app: payments}}\ningress: [{port: {number: 8080, protocol: HTTP, name: http}}]"
    found = line(lines(mesh_of(sidecar=rule(spec, kind="Sidecar"))), "the filter chain")
    assert "Sidecar shop/payments ingress (sidecar.yaml:1)" in found
