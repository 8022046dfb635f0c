import pytest

from analyze.meshes import WEB, said
from analyze.test_policies import policy

KEYS = """'{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}'"""


def believes(spec, namespace="shop"):
    return (
        "---\napiVersion: security.istio.io/v1\nkind: RequestAuthentication\n"
        f"metadata: {{name: x, namespace: {namespace}}}\nspec: {spec}\n"
    )


INLINE = believes(f"{{jwtRules: [{{issuer: me, jwks: {KEYS}}}]}}")


@pytest.mark.parametrize(
    ("rule", "outcome"),
    [
        ("{from: [{source: {requestPrincipals: ['*']}}]}", "matches no request"),
        ("{when: [{key: 'request.auth.claims[role]', values: [a]}]}", "matches no request"),
        ("{from: [{source: {notRequestPrincipals: ['*']}}]}", "treats every request as one without a token"),
        (
            "{from: [{source: {requestPrincipals: ['*']}}, {source: {ipBlocks: [10.0.0.1]}}]}",
            "treats every request as one without a token",
        ),
    ],
)
def test_a_rule_about_tokens_is_reported_where_tokens_are_not_checked(rule, outcome):
    (line,) = said(WEB + policy(f"{{rules: [{{}}, {rule}]}}"))
    assert "spec.rules[1]: warning: no RequestAuthentication selects web-v1: tokens are not checked there" in line
    assert outcome in line
    assert said(WEB + INLINE + policy(f"{{rules: [{rule}]}}")) == []


def test_a_rule_about_tokens_is_not_reported_if_some_of_its_workloads_check_them():
    some = believes(f"{{selector: {{matchLabels: {{version: v2}}}}, jwtRules: [{{issuer: me, jwks: {KEYS}}}]}}")
    asking = "{rules: [{from: [{source: {requestPrincipals: ['*']}}]}]}"
    assert said(WEB + some + policy(asking)) == []
    assert len(said(WEB + some + policy("{selector: {matchLabels: {version: v1}}, " + asking[1:]))) == 1


def test_a_request_authentication_that_selects_no_workload_is_reported():
    (line,) = said(WEB + INLINE.replace("namespace: shop", "namespace: shpo"))
    assert (
        "no workload runs in namespace shpo: the RequestAuthentication has no effect (hint: did you mean `shop`?)"
        in line
    )


def test_keys_that_a_pod_cannot_fetch_are_reported():
    fetched = "{jwtRules: [{issuer: me, jwksUri: 'https://login.example.com/keys'}]}"
    (line,) = said(WEB + believes(fetched))
    assert (
        "RequestAuthentication shop/x: spec.jwtRules[0].jwksUri: warning: pods of a mesh on one machine cannot fetch keys from "
        "login.example.com: every request with a token of me gets 401 (hint: write the keys into the rule instead, as `jwks`, or "
        "let pods reach the host: weft up --egress)"
    ) in line
    assert said(believes(fetched)) == []  # whoever runs elsewhere may reach it
    assert said(WEB + believes(fetched.replace("https://login.example.com", "http://web.shop.svc.cluster.local"))) == []
    known = (
        "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: login, namespace: shop}\nspec: "
        "{hosts: [login.example.com], ports: [{number: 443, name: tls, protocol: TLS}], resolution: STATIC, addresses: [240.0.0.9], endpoints: [{address: 10.0.0.9}]}\n"
    )
    assert said(WEB + known + believes(fetched)) == []


def test_a_port_of_unknown_protocol_is_reported_where_tokens_are_checked():
    unknown = WEB.replace("name: http, port: 80", "name: web, port: 80").replace(
        "{name: http, port: 8080}", "{port: 8080}"
    )
    (line,) = said(unknown + INLINE)
    assert "no Service declares the protocol of port 8080 of web-v1" in line
    assert said(WEB + INLINE) == []


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("tcp", "port 8080 of web-v1 is HTTP to one Service and not to another"),
        ("'', appProtocol: ''", "not every Service declares the protocol of port 8080 of web-v1"),
        ("http-too", ""),
    ],
)
def test_a_port_where_http_may_pass_as_tcp_is_reported_for_tokens(says, why):
    other = "---\napiVersion: v1\nkind: Service\nmetadata: {name: aaa, namespace: shop}\n"
    other += f"spec: {{selector: {{app: web}}, ports: [{{name: {says}, port: 81, targetPort: 8080}}]}}\n"
    found = [line for line in said(WEB + other + INLINE) if line.startswith("RequestAuthentication")]
    assert [why in line for line in found] == ([True] if why else [])
