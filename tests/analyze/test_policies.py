import pytest

from analyze import meshes
from analyze.meshes import WEB

DATABASE = """
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {selector: {app: web}, ports: [{name: mysql, port: 3306, targetPort: 3307}]}
"""
PROVIDERS = """
---
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data:
  mesh: |
    extensionProviders:
    - {name: checker, envoyExtAuthzHttp: {service: web.shop.svc.cluster.local, port: 80}}
    - {name: grpc-checker, envoyExtAuthzGrpc: {service: web.shop.svc.cluster.local, port: 80}}
    - {name: gone, envoyExtAuthzHttp: {service: gone.shop.svc.cluster.local, port: 80}}
    - {name: other-port, envoyExtAuthzHttp: {service: shop/web.shop.svc.cluster.local, port: 81}}
"""


def said(text):
    return [line for line in meshes.said(text) if line.startswith("AuthorizationPolicy")]


def policy(spec, namespace="shop", annotations="{}"):
    return (
        "---\napiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n"
        f"metadata: {{name: x, namespace: {namespace}, annotations: {annotations}}}\nspec: {spec}\n"
    )


@pytest.mark.parametrize(
    "spec",
    [
        "{}",
        "{selector: {matchLabels: {app: web}}}",
        "{action: DENY, rules: [{to: [{operation: {paths: [/a]}}]}]}",
    ],
)
def test_a_policy_for_workloads_with_http_ports_has_no_findings(spec):
    assert said(WEB + policy(spec)) == []


def test_a_policy_that_selects_no_workload_is_reported():
    (line,) = said(WEB + policy("{selector: {matchLabels: {app: wbe}}}"))
    assert line == (
        "AuthorizationPolicy shop/x: spec.selector: warning: no workload of namespace shop has the labels app=wbe: "
        "the policy has no effect (hint: app: did you mean `web`?)"
    )
    assert said(WEB + policy("{selector: {matchLabels: {app: web}}}", namespace="istio-system")) == []
    (line,) = said(WEB + policy("{selector: {matchLabels: {app: wbe}}}", namespace="istio-system"))
    assert "no workload of the mesh has" in line


@pytest.mark.parametrize(
    ("action", "outcome"),
    [
        ("ALLOW", "so this rule allows no connection there (hint: allow callers of that port by a rule without"),
        ("DENY", 'so this rule ignores its HTTP conditions and denies every connection that its other conditions match (hint: to limit the rule to HTTP, add `ports` to its operations, such as ports: ["8080"])'),
        ("AUDIT", "so this rule ignores its HTTP conditions and audits every connection that its other conditions match"),
    ],
)  # fmt: skip
def test_a_rule_that_needs_http_is_reported_with_the_port_that_carries_none(action, outcome):
    spec = f"{{action: {action}, rules: [{{}}, {{to: [{{operation: {{paths: [/a]}}}}]}}]}}"
    (line,) = said(WEB + DATABASE + policy(spec))
    assert "AuthorizationPolicy shop/x: spec.rules[1]: warning: port 3307 does not carry HTTP, " in line
    assert outcome in line


def test_a_rule_for_other_ports_or_a_dry_run_has_no_findings():
    paths = "{action: DENY, rules: [{to: [{operation: {paths: [/a], ports: ['8080']}}]}]}"
    assert said(WEB + DATABASE + policy(paths)) == []
    assert said(WEB + DATABASE + policy(paths.replace("ports: ['8080']", "notPorts: ['3307']"))) == []
    assert said(WEB + DATABASE + policy("{rules: [{to: [{operation: {paths: [/a]}}]}]}", annotations="{istio.io/dry-run: 'true'}")) == []  # fmt: skip


@pytest.mark.parametrize(
    ("provider", "outcome"),
    [
        ("checkr", "there is no authorizer `checkr`: requests that this policy matches are denied (hint: did you mean `checker`?)"),
        ("gone", "is the service gone.shop.svc.cluster.local, which does not exist"),
        ("other-port", "is port 81 of web.shop.svc.cluster.local, which does not exist"),
    ],
)  # fmt: skip
def test_a_missing_authorizer_is_reported(provider, outcome):
    (line,) = said(WEB + PROVIDERS + policy(f"{{action: CUSTOM, provider: {{name: {provider}}}, rules: [{{}}]}}"))
    assert outcome in line


def test_an_http_authorizer_for_connections_is_reported_and_a_grpc_one_is_not():
    spec = "{action: CUSTOM, provider: {name: checker}, rules: [{}]}"
    (line,) = said(WEB + DATABASE + PROVIDERS + policy(spec))
    assert "port 3307 does not carry HTTP, and this authorizer decides about HTTP only" in line
    assert said(WEB + DATABASE + PROVIDERS + policy(spec.replace("checker", "grpc-checker"))) == []


def test_a_services_port_in_a_rule_is_reported():
    for spec in (
        "{action: DENY, rules: [{to: [{operation: {ports: ['80']}}]}]}",
        "{action: DENY, rules: [{when: [{key: destination.port, values: ['80']}]}]}",
    ):
        (line,) = said(WEB + policy(spec))
        assert "spec.rules[0]: warning: 80 is the Service's port, and the workload listens on port 8080" in line
        assert said(WEB + policy(spec.replace("80", "8080"))) == []


def test_a_port_that_only_the_workload_declares_counts():
    own = WEB.replace("ports: [{name: http, port: 8080}]", "ports: [{port: 8080}, {port: 9000, protocol: tcp}]")
    (line,) = said(own + policy("{action: DENY, rules: [{to: [{operation: {paths: [/a]}}]}]}"))
    assert "port 9000 does not carry HTTP, so this rule ignores its HTTP conditions and denies every connection" in line


def test_a_listener_that_terminates_tls_carries_http_whatever_its_port_name():
    found = said(
        """
        apiVersion: weft.dev/v1alpha1
        kind: Workload
        metadata: {name: edge, namespace: edge, labels: {gateway.networking.k8s.io/gateway-name: gapi}}
        spec: {gateway: {}}
        ---
        apiVersion: v1
        kind: Service
        metadata: {name: edge, namespace: edge}
        spec: {selector: {gateway.networking.k8s.io/gateway-name: gapi}, ports: [{name: https, port: 443}]}
        ---
        apiVersion: gateway.networking.k8s.io/v1
        kind: Gateway
        metadata: {name: gapi, namespace: edge}
        spec:
          gatewayClassName: weft
          listeners: [{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: edge}]}}]
        ---
        apiVersion: security.istio.io/v1
        kind: AuthorizationPolicy
        metadata: {name: no-admin, namespace: edge}
        spec:
          targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: gapi}]
          action: DENY
          rules: [{to: [{operation: {paths: [/admin*]}}]}]
        """
    )
    assert not [each for each in found if "carry HTTP" in each]
