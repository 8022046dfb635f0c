"""Levels of rules: WFT0213, WFT0222 and WFT0223 have the plain cases."""

from analyze.meshes import istio, said

MIXED = """
apiVersion: v1
kind: Service
metadata: {name: both, namespace: shop}
spec: {selector: {app: both}, ports: [{name: http, port: 80}, {name: tcp, port: 90}, {name: tls, port: 443}]}
---
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: both, namespace: shop, labels: {app: both, version: v1}}
spec: {command: [sleep, infinity], ports: [{name: http, port: 80}, {name: tcp, port: 90}, {name: tls, port: 443}]}
"""
IDLE = "connectionPool: {http: {idleTimeout: 5s}}"
BY_HEADER = "loadBalancer: {consistentHash: {httpHeaderName: x}}"


def found(policy, more=""):
    return said(MIXED + istio("DestinationRule", f"{{host: both, trafficPolicy: {{{policy}}}{more}}}"))


def at(port, settings):
    return f"{{port: {{number: {port}}}, {settings}}}"


def test_http_settings_for_a_host_with_http_and_other_ports_have_no_findings():
    assert found(IDLE) == found(BY_HEADER) == []
    assert found(f"portLevelSettings: [{at(80, IDLE)}]") == found(f"portLevelSettings: [{at(80, BY_HEADER)}]") == []


def test_an_entry_for_a_port_without_http_is_reported():
    many = "connectionPool: {http: {maxRequestsPerConnection: 3, maxConcurrentStreams: 4, h2UpgradePolicy: UPGRADE}}"
    (line,) = found(f"portLevelSettings: [{at(80, IDLE)}, {at(443, many)}]")
    assert "spec.trafficPolicy.portLevelSettings[1].connectionPool.http: warning: " in line
    assert (
        "carries HTTP, only tls: `maxRequestsPerConnection`, `maxConcurrentStreams`, `h2UpgradePolicy` have no" in line
    )
    (line,) = found(f"portLevelSettings: [{at(90, BY_HEADER)}]")
    assert "spec.trafficPolicy.portLevelSettings[0].loadBalancer: warning: connections to both.shop" in line


def test_a_level_whose_http_ports_have_their_own_entries_is_reported():
    (line,) = found(f"{IDLE}, portLevelSettings: [{at(80, 'loadBalancer: {simple: RANDOM}')}]")
    assert (
        "spec.trafficPolicy.connectionPool.http: warning: " in line
        and "carries HTTP, only tcp, tls: `idleTimeout` has no" in line
    )


def test_the_levels_of_subsets_are_checked_too():
    subset = f"{{name: v1, labels: {{version: v1}}, trafficPolicy: {{portLevelSettings: [{at(90, IDLE)}]}}}}"
    (line,) = found(IDLE, f", subsets: [{subset}]")
    assert "spec.subsets[0].trafficPolicy.portLevelSettings[0].connectionPool.http: warning: " in line


def test_limits_that_apply_to_any_cluster_are_not_reported():
    limits = "connectionPool: {tcp: {maxConnections: 3}, http: {http1MaxPendingRequests: 1, http2MaxRequests: 2}}"
    assert found(f"portLevelSettings: [{at(90, limits)}]") == []


def test_a_port_without_a_declared_protocol_may_carry_http():
    unnamed = istio("DestinationRule", f"{{host: both, trafficPolicy: {{portLevelSettings: [{at(90, IDLE)}]}}}}")
    assert said(MIXED.replace("name: tcp, port: 90", "name: x, port: 90") + unnamed) == []


RETRIES = "connectionPool: {http: {maxRetries: 3}}"
BUDGET = "retryBudget: {percent: 25}"


def test_a_retry_budget_applies_to_ports_and_subsets_with_max_retries():
    assert found(RETRIES) == found(BUDGET) == []
    (line,) = found(f"{BUDGET}, portLevelSettings: [{at(80, RETRIES)}]")
    assert (
        "portLevelSettings[0].connectionPool.http.maxRetries: warning: the `retryBudget` of 25 % limits retries" in line
    )
    subset = "{name: v1, labels: {version: v1}, trafficPolicy: {%s}}"
    (line,) = found(BUDGET, f", subsets: [{subset % RETRIES}]")
    assert "spec.subsets[0].trafficPolicy.connectionPool.http.maxRetries" in line
    assert found(RETRIES, f", subsets: [{subset % BUDGET}]") == [], "the host's own number holds outside the subset"


def test_a_header_hash_is_not_reported_where_a_sidecar_declares_http():
    egress = "{egress: [{port: {number: 90, name: x, protocol: HTTP}, hosts: [./both.shop.svc.cluster.local]}]}"
    assert found(f"portLevelSettings: [{at(90, BY_HEADER)}]", "") != []
    rule = istio("DestinationRule", f"{{host: both, trafficPolicy: {{portLevelSettings: [{at(90, BY_HEADER)}]}}}}")
    assert [line for line in said(MIXED + istio("Sidecar", egress) + rule) if "DestinationRule" in line] == []
