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


def test_a_workload_without_a_proxy_is_guarded_by_nobody():
    for spec in ("{}", "{selector: {matchLabels: {version: v2}}}"):
        (line,) = said(without_proxy(WEB) + policy(spec))
        assert "web-v2 runs without a proxy: this policy is not enforced there" in line
    assert said(without_proxy(WEB) + policy("{selector: {matchLabels: {version: v1}}}")) == []
    assert said(without_proxy(WEB) + policy("{}", annotations="{istio.io/dry-run: 'true'}")) == []


def test_a_caller_without_a_proxy_needs_no_guard():
    caller = (
        WEB.rpartition("---")[2]
        .replace("web-v2", "caller")
        .replace("app: web", "app: c, sidecar.istio.io/inject: 'false'")
    )
    assert said(WEB + "---" + caller + policy("{}")) == []


def test_a_port_that_the_proxy_does_not_see_is_guarded_by_nobody():
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
def test_a_rule_about_callers_does_not_know_those_in_plaintext(spec, does):
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
def test_rules_that_keep_out_plaintext_or_do_not_ask_who_calls_are_well(spec):
    assert said(WEB + policy(spec)) == []


def test_a_rule_about_callers_is_well_where_every_allow_asks_for_a_name():
    allow = policy("{rules: [{from: [{source: {principals: ['*']}}]}]}").replace("name: x", "name: y")
    assert said(WEB + policy(BY_NAME) + allow) == []
