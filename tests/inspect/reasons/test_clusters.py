import pytest
from tests.inspect.reasons.told import CLUSTER, SERVICE, mesh_of, rule, told

from weft.inspect.reasons import rules
from weft.inspect.reasons.clusters import level_rules
from weft.model.destination_rule import PolicyLevel

POOL = "connectionPool: {tcp: {maxConnections: 7}}"
SUBSET = "outbound|80|v1|payments.shop.svc.cluster.local"


def cluster(mesh, path="", name=CLUSTER):
    return told(mesh, f"{name}.{path}" if path else name, kind="cluster")


def test_without_any_rule_each_field_is_a_default():
    mesh = mesh_of()
    assert cluster(mesh) == (("Service shop/payments (service.yaml:2)",), ("cluster-per-port",))
    assert cluster(mesh, "circuit_breakers") == ((), ("no-limits", "retry-budget"))
    assert cluster(mesh, "connect_timeout") == ((), ("connect-timeout",))
    assert cluster(mesh, "lb_policy") == ((), ("least-request",))
    assert cluster(mesh, "outlier_detection") == ((), ("no-ejection",))
    assert cluster(mesh, "transport_socket_matches") == ((), ("auto-mtls",))
    assert cluster(mesh, "typed_extension_protocol_options") == ((), ("http2-between-proxies",))
    assert cluster(mesh, "type") == (("Service shop/payments (service.yaml:2)",), ("endpoints-sent",))


def test_both_clusters_of_a_headless_service_that_routes_lead_to_have_reasons():
    headless = SERVICE.replace("10.96.0.7", "None")
    other = SERVICE.replace("payments, n", "front, n")
    leading = rule("hosts: [front]\nhttp: [{route: [{destination: {host: payments, port: {number: 80}}}]}]", "front",
                   kind="VirtualService")  # fmt: skip
    mesh = mesh_of(service=headless, other=other, leading=leading)
    owner = ("Service shop/payments (service.yaml:2)",)
    assert cluster(mesh, "type") == (owner, ("as-called",))
    assert cluster(mesh, "type", name=CLUSTER.replace("80|", "80|~")) == (owner, ("endpoints-sent",))


def test_a_hidden_service_has_a_cluster_because_of_the_routes_to_it():
    other = SERVICE.replace("payments, n", "front, n").replace("10.96.0.7", "10.96.0.8")
    leading = rule("hosts: [front]\nhttp: [{route: [{destination: {host: payments, port: {number: 80}}}]}]", "front",
                   kind="VirtualService")  # fmt: skip
    sidecar = rule("egress: [{hosts: [./front.shop.svc.cluster.local]}]", "default", kind="Sidecar")
    mesh = mesh_of(other=other, leading=leading, sidecar=sidecar)
    routed = "VirtualService shop/front (leading.yaml:1)"
    by = ("Service shop/payments (service.yaml:2)", routed, "Sidecar shop/default (sidecar.yaml:1)")
    assert cluster(mesh) == (by, ("cluster-of-route",))
    assert cluster(mesh, name=CLUSTER.replace("payments", "front"))[1] == ("cluster-per-port", "sidecar-scope")


def test_settings_of_the_hosts_traffic_policy_name_the_destination_rule():
    mesh = mesh_of(rule=rule(f"host: payments\ntrafficPolicy: {{{POOL}, outlierDetection: {{interval: 5s}}}}"))
    pool = "DestinationRule shop/payments trafficPolicy.connectionPool (rule.yaml:6)"
    assert cluster(mesh, "circuit_breakers") == (
        (pool,),
        ("no-limits", "retry-budget"),
    )  # of the limits that it does not mention
    assert cluster(mesh, "outlier_detection") == (
        ("DestinationRule shop/payments trafficPolicy.outlierDetection (rule.yaml:6)",),
        ("tenth-ejectable",),
    )
    assert cluster(mesh)[1] == ("cluster-per-port", "nearest-destination-rule")


def test_a_subset_is_named_with_its_line_and_overrides_its_host():
    spec = f"""
host: payments
trafficPolicy: {{{POOL}}}
subsets:
- name: v1
  labels: {{version: v1}}
  trafficPolicy: {{connectionPool: {{tcp: {{maxConnections: 3}}}}}}
"""
    mesh = mesh_of(rule=rule(spec))
    found, by = cluster(mesh, name=SUBSET)
    assert found == (
        "DestinationRule shop/payments subsets[v1] (rule.yaml:8)",
        "Service shop/payments (service.yaml:2)",
    )
    assert by == ("cluster-per-subset", "nearest-destination-rule")
    assert cluster(mesh, "circuit_breakers", SUBSET) == (
        ("DestinationRule shop/payments subsets[v1].trafficPolicy.connectionPool (rule.yaml:10)",),
        ("subset-over-host", "no-limits", "retry-budget"),
    )


def test_each_of_merged_rules_is_named_for_its_settings():
    younger = rule("host: payments\ntrafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}", name="second")
    older = rule("host: payments\nsubsets: [{name: v1, labels: {version: v1}}]", name="first")
    mesh = mesh_of(first=older, second=younger)
    found, by = cluster(mesh)
    assert found[1:] == ("DestinationRule shop/first (first.yaml:1)", "DestinationRule shop/second (second.yaml:1)")
    assert by == ("cluster-per-port", "nearest-destination-rule", "destination-rules-merged")
    assert cluster(mesh, name=SUBSET)[0] == (
        "DestinationRule shop/first subsets[v1] (first.yaml:6)",
        "Service shop/payments (service.yaml:2)",
        "DestinationRule shop/second (second.yaml:1)",
    )
    pool = "DestinationRule shop/second trafficPolicy.connectionPool (second.yaml:6)"
    assert cluster(mesh, "circuit_breakers", SUBSET)[0] == (pool,)


def test_retry_budget_and_locality_settings_name_the_destination_rule():
    spec = """
host: payments
trafficPolicy:
  retryBudget: {percent: 5}
  loadBalancer: {localityLbSetting: {distribute: [{from: '*', to: {'*': 100}}]}}
"""
    mesh = mesh_of(rule=rule(spec))
    policy = "DestinationRule shop/payments trafficPolicy"
    assert cluster(mesh, "circuit_breakers") == ((f"{policy}.retryBudget (rule.yaml:6)",), ("no-limits",))
    assert cluster(mesh, "common_lb_config") == ((f"{policy}.loadBalancer (rule.yaml:6)",), ("locality-by-rule",))
    assert cluster(mesh, "lb_policy")[1] == ("least-request",)


def test_port_level_settings_replace_their_level_including_unset_fields():
    spec = f"""
host: payments
trafficPolicy:
  {POOL}
  outlierDetection: {{interval: 5s}}
  portLevelSettings: [{{port: {{number: 80}}, connectionPool: {{tcp: {{maxConnections: 2}}}}}}]
"""
    mesh = mesh_of(rule=rule(spec))
    part = "trafficPolicy.portLevelSettings.connectionPool"
    assert cluster(mesh, "circuit_breakers") == (
        (f"DestinationRule shop/payments {part} (rule.yaml:9)",),
        ("port-replaces-level", "no-limits", "retry-budget"),
    )
    assert cluster(mesh, "outlier_detection") == ((), ("port-replaces-level", "no-ejection"))


@pytest.mark.parametrize(
    ("level", "passed", "expected"),
    [
        (PolicyLevel.HOST, None, ()),
        (PolicyLevel.SUBSET, PolicyLevel.HOST, (rules.SUBSET_OVER_HOST,)),
        (PolicyLevel.SUBSET, PolicyLevel.HOST_PORT, (rules.SUBSET_OVER_HOST,)),
        (PolicyLevel.SUBSET_PORT, PolicyLevel.SUBSET, (rules.PORT_REPLACES_HOST,)),
        (None, PolicyLevel.HOST, (rules.PORT_REPLACES_HOST,)),
    ],
)
def test_level_rules_names_the_overriding_rule(level, passed, expected):
    assert level_rules(level, passed) == expected


def test_tls_of_a_destination_rule_overrides_automatic_mtls():
    mesh = mesh_of(rule=rule("host: payments\ntrafficPolicy: {tls: {mode: DISABLE}}"))
    assert cluster(mesh, "transport_socket") == (
        ("DestinationRule shop/payments trafficPolicy.tls (rule.yaml:6)",),
        ("tls-by-rule",),
    )


def test_mesh_settings_are_named_where_they_decide():
    config = """
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data:
  mesh: |
    connectTimeout: 3s
    enableAutoMtls: false
    outboundTrafficPolicy: {mode: REGISTRY_ONLY}
"""
    mesh = mesh_of(mesh=config)
    written = ("ConfigMap istio-system/istio (mesh.yaml:2)",)
    assert cluster(mesh, "connect_timeout") == (written, ("connect-timeout-of-mesh",))
    assert cluster(mesh, "transport_socket") == (written, ("no-auto-mtls",))
    assert cluster(mesh, name="PassthroughCluster") == (written, ("unknown-hosts", "outbound-policy-of-mesh"))


def test_a_service_with_a_traffic_distribution_is_named_for_its_localities():
    mesh = mesh_of(service=SERVICE.replace("spec: {", "spec: {trafficDistribution: PreferSameZone, "))
    assert cluster(mesh, "common_lb_config")[1] == ("locality-by-service",)


def test_an_inbound_cluster_is_of_the_service_that_names_its_port():
    mesh = mesh_of(rule=rule(f"host: payments\ntrafficPolicy: {{{POOL}}}"))
    found = told(mesh, "inbound|8080||", "payments-0.shop", "cluster")
    assert found == (
        ("Service shop/payments (service.yaml:2)", "DestinationRule shop/payments (rule.yaml:1)"),
        ("cluster-per-inbound-port",),
    )
    limits = told(mesh, "inbound|8080||.circuit_breakers", "payments-0.shop", "cluster")
    assert limits[0] == ("DestinationRule shop/payments trafficPolicy.connectionPool (rule.yaml:6)",)


def test_both_inbound_clusters_of_a_port_name_their_callers():
    other = """
apiVersion: v1
kind: Service
metadata: {name: other, namespace: shop}
spec: {selector: {app: payments}, clusterIP: None, ports: [{port: 8080}]}
"""
    mesh = mesh_of(other=other)
    for name, by in (("inbound|8080||", "http-as-declared"), ("inbound|8080|as-called|", "http-as-called")):
        found = told(mesh, f"{name}.typed_extension_protocol_options", "payments-0.shop", "cluster")
        assert found[1] == (by, "callers-told-apart")
        assert told(mesh, name, "payments-0.shop", "route")[1] == ("inbound-listener",)


def test_a_sidecar_is_named_for_its_ingress_ports_and_egress_hosts():
    spec = """
workloadSelector: {labels: {app: payments}}
ingress: [{port: {number: 9000, protocol: HTTP, name: http}, defaultEndpoint: "127.0.0.1:8080"}]
egress: [{hosts: ["./*"]}]
outboundTrafficPolicy: {mode: REGISTRY_ONLY}
"""
    mesh = mesh_of(sidecar=rule(spec, kind="Sidecar"))
    assert told(mesh, "inbound|9000||", "payments-0.shop", "cluster") == (
        ("Sidecar shop/payments ingress (sidecar.yaml:1)",),
        ("cluster-per-inbound-port", "ingress-replaces-services"),
    )
    seen = told(mesh, CLUSTER, "payments-0.shop", "cluster")
    assert "Sidecar shop/payments (sidecar.yaml:1)" in seen[0] and "sidecar-scope" in seen[1]
    assert told(mesh, "PassthroughCluster", "payments-0.shop")[1][1] == "outbound-policy-of-sidecar"


def test_a_sidecars_connection_pool_overrides_the_destination_rule():
    pool = rule("inboundConnectionPool: {tcp: {maxConnections: 4}}", name="sidecar", kind="Sidecar")
    mesh = mesh_of(rule=rule(f"host: payments\ntrafficPolicy: {{{POOL}}}"), sidecar=pool)
    found, by = told(mesh, "inbound|8080||.circuit_breakers", "payments-0.shop", "cluster")
    assert found == ("Sidecar shop/sidecar (sidecar.yaml:1)",)
    assert "pool-of-sidecar" in by


def test_a_host_outside_is_called_as_the_application_calls_it():
    entry = rule(
        "hosts: [bank.example.com]\nlocation: MESH_EXTERNAL\nresolution: DNS\n"
        "ports: [{number: 443, name: tls, protocol: TLS}]",
        name="bank",
        kind="ServiceEntry",
    )
    name = "outbound|443||bank.example.com"
    mesh = mesh_of(entry=entry)
    written = ("ServiceEntry shop/bank (entry.yaml:1)",)
    assert cluster(mesh, "transport_socket", name) == (written, ("no-tls-outside",))
    assert cluster(mesh, "cluster_type", name) == (written, ("endpoints-by-dns",))
    originated = rule("host: bank.example.com\ntrafficPolicy: {tls: {mode: SIMPLE}}", name="bank")
    mesh = mesh_of(entry=entry, rule=originated)
    assert told(mesh, f"{name}/roots", kind="secret") == (
        ("DestinationRule shop/bank (rule.yaml:1)",),
        ("files-of-rule",),
    )
