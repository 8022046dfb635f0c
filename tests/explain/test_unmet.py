import pytest
import yaml

from explain.test_rule import IDENTITY
from weft.api.parse import parse
from weft.explain.listener import IncomingConnection
from weft.explain.request import RequestHeaders, Speaks
from weft.explain.rule import GuardInput
from weft.explain.unmet import unmet
from weft.files.documents import read_documents
from weft.model.authorization_policy import Action
from weft.model.settings import Settings
from weft.translate.rbac import nothing, rbac_policy

CALLER = IDENTITY.removeprefix("spiffe://")
TOKEN = {"envoy.filters.http.jwt_authn": {"payload": {"iss": "https://a.example", "sub": "ann", "groups": ["staff"]}}}


def seen(**more):
    connection = IncomingConnection("10.0.0.9", "10.0.0.1", 8080, Speaks.TLS, "orders.shop")
    headers = [(":path", "/charge?card=1"), (":method", "POST"), (":authority", "orders"), ("x-key", "secret")]
    return GuardInput(
        connection, **{"identities": (IDENTITY,), "remote": "192.0.2.7", "headers": RequestHeaders(headers), **more}
    )


def rule(text):
    """The rule of a policy as Envoy gets it."""
    policy = {
        "apiVersion": "security.istio.io/v1",
        "kind": "AuthorizationPolicy",
        "metadata": {"name": "p", "namespace": "shop"},
        "spec": {"rules": [yaml.safe_load(text)]},
    }
    (document,) = read_documents(yaml.safe_dump(policy).encode(), "p.yaml").documents
    (value,) = parse(document).values
    return rbac_policy(value.rules[0], Action.ALLOW, Settings(), http=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("to: [{operation: {methods: [GET]}}]", "method POST is not GET"),
        ("to: [{operation: {methods: [GET, HEAD, PUT]}}]", "method POST is not GET, HEAD or PUT"),
        ("to: [{operation: {methods: [A, B, C, D, E, F]}}]", "method POST is not A, B, C, D or 2 more"),
        ("to: [{operation: {notMethods: [GET, POST]}}]", "method POST is excluded"),
        ("to: [{operation: {paths: [/health, '/public/*', '*.css']}}]", "path /charge is not /health, /public/* or *.css"),
        ("to: [{operation: {notPaths: ['/charge*']}}]", "path /charge is excluded"),
        ("to: [{operation: {hosts: [payments]}}]", "host orders is not payments"),
        ("to: [{operation: {ports: ['9000']}}]", "port 8080 is not 9000"),
        (
            "to: [{operation: {methods: [GET], paths: [/health]}}]",
            "method POST is not GET and path /charge is not /health",
        ),
        (
            "to: [{operation: {methods: [GET], paths: [/charge]}}, {operation: {methods: [POST], paths: [/pay]}}]",
            "method POST is not GET; or else path /charge is not /pay",
        ),
        ("from: [{source: {principals: [cluster.local/ns/shop/sa/a]}}]", f"caller {CALLER} is not cluster.local/ns/shop/sa/a"),
        ("from: [{source: {notPrincipals: ['*']}}]", f"caller {CALLER} is excluded"),
        (
            "from: [{source: {trustDomains: [a.com, 'b-*']}}]",
            f"caller {CALLER} is not of trust domain a.com or of trust domain b-*",
        ),
        ("from: [{source: {namespaces: [bank, 'till-*']}}]", f"caller {CALLER} is not in namespace bank or in namespace till-*"),
        ("from: [{source: {serviceAccounts: [bank/teller]}}]", f"caller {CALLER} is not service account bank/teller"),
        ("from: [{source: {ipBlocks: [10.1.0.0/16]}}]", "source address 10.0.0.9 is not in 10.1.0.0/16"),
        ("from: [{source: {remoteIpBlocks: [10.1.0.0/16]}}]", "remote address 192.0.2.7 is not in 10.1.0.0/16"),
        ("from: [{source: {requestPrincipals: ['https://a.example/bob']}}]", "claim sub (ann) is not bob"),
        (
            "{from: [{source: {namespaces: [bank]}}], to: [{operation: {methods: [GET]}}]}",
            f"method POST is not GET and caller {CALLER} is not in namespace bank",
        ),
        ("when: [{key: 'request.headers[x-key]', values: [other]}]", "header x-key is not other"),
        ("when: [{key: 'request.headers[x-user]', values: [ann]}]", "there is no header x-user"),
        ("when: [{key: 'request.auth.claims[groups]', values: [admin, boss]}]", "claim groups (staff) is not admin or boss"),
        ("when: [{key: 'request.auth.claims[role]', values: [admin]}]", "the token has no claim role"),
        ("when: [{key: connection.sni, values: [payments.shop]}]", "server name orders.shop is not payments.shop"),
        ("when: [{key: destination.ip, values: [10.9.0.0/16]}]", "destination 10.0.0.1 is not in 10.9.0.0/16"),
        ("to: [{operation: {methods: [POST]}}]", ""),
    ],
)  # fmt: skip
def test_unmet_conditions_are_described(text, said):
    assert unmet(rule(text), seen(metadata=TOKEN)) == said


def test_a_missing_certificate_or_token_is_reported_without_accepted_values():
    assert unmet(rule("from: [{source: {namespaces: [bank, shop]}}]"), seen(identities=())) == (
        "the caller has presented no certificate"
    )
    asked = rule("from: [{source: {requestPrincipals: ['*']}}]")
    assert unmet(asked, seen()) == "there is no verified token"


def test_a_rule_that_never_matches_has_no_unmet_conditions():
    assert unmet(nothing(), seen()) == ""
