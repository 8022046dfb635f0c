import pytest

from analyze import meshes
from analyze.meshes import WEB
from analyze.test_policies import policy

STRICT = """
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: STRICT}}
"""
BY_NAME = "{action: DENY, rules: [{from: [{source: {namespaces: [bad]}}]}]}"


def said(text):
    lines = (line for line in meshes.said(text) if line.startswith("AuthorizationPolicy"))
    return [line for line in lines if "matches no caller" not in line]  # who is named does not matter here


def without_proxy(text):
    return text.replace(
        "labels: {app: web, version: v2}", "labels: {app: web, version: v2, sidecar.istio.io/inject: 'false'}"
    )


def test_a_policy_for_a_workload_without_a_proxy_is_reported():
    for spec in ("{}", "{selector: {matchLabels: {version: v2}}}"):
        (line,) = said(without_proxy(WEB) + policy(spec))
        assert "web-v2 runs without a proxy: this policy is not enforced there" in line
    assert said(without_proxy(WEB) + policy("{selector: {matchLabels: {version: v1}}}")) == []
    assert said(without_proxy(WEB) + policy("{}", annotations="{istio.io/dry-run: 'true'}")) == []


def test_a_caller_without_a_proxy_is_not_reported():
    caller = (
        WEB.rpartition("---")[2]
        .replace("web-v2", "caller")
        .replace("app: web", "app: c, sidecar.istio.io/inject: 'false'")
    )
    assert said(WEB + "---" + caller + policy("{}")) == []


def test_a_policy_for_a_port_that_is_not_intercepted_is_reported():
    excluded = "annotations: {traffic.sidecar.istio.io/excludeInboundPorts: '8080'}, labels: {app: web, version: v2}"
    (line,) = said(WEB.replace("labels: {app: web, version: v2}", excluded) + policy("{}"))
    assert "calls to port 8080 of web-v2 are not intercepted" in line


@pytest.mark.parametrize(
    ("spec", "does"),
    [
        (BY_NAME, "does not match"),
        ("{action: DENY, rules: [{when: [{key: source.principal, values: [a]}]}]}", "does not match"),
        ("{rules: [{from: [{source: {notNamespaces: [bad]}}]}]}", "allows"),
        ("{rules: [{when: [{key: source.serviceAccount, notValues: [bad]}]}]}", "allows"),
    ],
)
def test_a_rule_about_callers_is_reported_where_plaintext_is_accepted(spec, does):
    (line,) = said(WEB + policy(spec))
    assert (
        f"spec.rules[0]: warning: this rule {does} callers in plaintext, which have no identity, and web-v1 accepts "
        "plaintext" in line
    )
    assert said(WEB + STRICT + policy(spec)) == []


@pytest.mark.parametrize(
    "spec",
    [
        "{rules: [{from: [{source: {namespaces: [shop]}}]}]}",
        "{action: DENY, rules: [{from: [{source: {notNamespaces: [shop]}}]}]}",
        "{action: DENY, rules: [{from: [{source: {namespaces: [bad]}}]}, {from: [{source: {notPrincipals: ['*']}}]}]}",
        "{rules: [{from: [{source: {namespaces: [a*], notNamespaces: [ab]}}]}]}",
        "{action: DENY, rules: [{from: [{source: {ipBlocks: [10.0.0.0/8]}}]}]}",
        "{action: AUDIT, rules: [{from: [{source: {namespaces: [bad]}}]}]}",
    ],
)
def test_rules_that_reject_plaintext_or_name_no_callers_have_no_findings(spec):
    assert said(WEB + policy(spec)) == []


def test_a_rule_about_callers_is_not_reported_if_every_allow_rule_needs_an_identity():
    allow = policy("{rules: [{from: [{source: {principals: ['*']}}]}]}").replace("name: x", "name: y")
    assert said(WEB + policy(BY_NAME) + allow) == []
