from tests.inspect.reasons.told import mesh_of, rule, told

HOST = "payments.shop.svc.cluster.local:80"
ROUTES = """
hosts: [payments]
http:
- {name: charge, match: [{uri: {prefix: /charge}}], timeout: 3s, route: [{destination: {host: payments}}]}
- {name: rest, retries: {attempts: 5}, route: [{destination: {host: payments, port: {number: 80}}}]}
"""


def route(mesh, name, field=""):
    below = f".route.{field}" if field else ""
    return told(mesh, f"80.virtual_hosts[{HOST}].routes[{name}]{below}", kind="route")


def virtual_service(spec, name="payments"):
    return rule(spec, name=name, kind="VirtualService")


def test_without_a_virtual_service_everything_is_a_default():
    mesh = mesh_of()
    service = ("Service shop/payments (service.yaml:2)",)
    assert told(mesh, f"80.virtual_hosts[{HOST}]", kind="route") == (service, ("route-to-service",))
    assert route(mesh, "default") == (service, ("route-to-service",))
    assert route(mesh, "default", "timeout") == ((), ("no-timeout",))
    assert route(mesh, "default", "retry_policy") == ((), ("retries",))
    assert told(mesh, "80", kind="route") == ((), ("routes-per-port",))


def test_retries_of_the_mesh_config_are_named_where_they_decide():
    config = """
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: "defaultHttpRetryPolicy: {attempts: 3}"}
"""
    mesh = mesh_of(mesh=config, routes=virtual_service(ROUTES))
    written = ("ConfigMap istio-system/istio (mesh.yaml:2)",)
    assert route(mesh, "charge", "retry_policy") == (written, ("retries-of-mesh",))
    assert route(mesh, "rest", "retry_policy") == (("VirtualService shop/payments (routes.yaml:8)",), ())


def test_each_field_of_a_route_names_its_line_or_a_default():
    mesh = mesh_of(routes=virtual_service(ROUTES))
    charge, rest = (f"VirtualService shop/payments (routes.yaml:{line})" for line in (7, 8))
    assert route(mesh, "charge") == ((charge,), ("routes-in-order",))
    assert route(mesh, "charge", "timeout") == ((charge,), ())
    assert route(mesh, "charge", "retry_policy") == ((), ("retries",))
    assert route(mesh, "charge", "cluster") == ((charge,), ("destination-port",))
    assert route(mesh, "rest", "timeout") == ((), ("no-timeout",))
    assert route(mesh, "rest", "retry_policy") == ((rest,), ())
    assert route(mesh, "rest", "cluster") == ((rest,), ())


def test_of_two_virtual_services_for_one_host_the_rule_is_named():
    mesh = mesh_of(first=virtual_service(ROUTES, "a-first"), second=virtual_service(ROUTES, "b-second"))
    found, by = told(mesh, f"80.virtual_hosts[{HOST}]", kind="route")
    assert by == ("one-virtual-service",)
    assert "VirtualService shop/a-first (first.yaml:1)" in found


def test_a_wildcard_is_named_as_such():
    mesh = mesh_of(routes=virtual_service(ROUTES.replace("[payments]", '["*.shop.svc.cluster.local"]')))
    assert told(mesh, f"80.virtual_hosts[{HOST}]", kind="route")[1] == ("exact-host-first",)


def test_a_delegate_inherits_and_both_objects_are_named():
    root = "hosts: [payments]\nhttp: [{timeout: 2s, delegate: {name: leaf}}]"
    leaf = "http: [{name: leaf, route: [{destination: {host: payments}}]}]"
    mesh = mesh_of(root=virtual_service(root), leaf=virtual_service(leaf, "leaf"))
    found, by = route(mesh, "leaf")
    assert [each.split(" (")[0] for each in found] == ["VirtualService shop/leaf", "VirtualService shop/payments"]
    assert by == ("routes-in-order", "delegated")
    assert route(mesh, "leaf", "timeout")[1] == ("delegated",)


def test_routes_for_other_callers_are_ignored():
    only = "hosts: [payments]\nhttp: [{match: [{sourceNamespace: other}], route: [{destination: {host: payments}}]}]"
    assert route(mesh_of(routes=virtual_service(only)), "default")[1] == ("routes-for-others",)


def test_the_hash_policy_names_the_destination_rule():
    hashing = rule("host: payments\ntrafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x-user}}}")
    assert route(mesh_of(rule=hashing), "default", "hash_policy") == (
        ("DestinationRule shop/payments (rule.yaml:1)",),
        ("hash-from-rule",),
    )


def test_unknown_hosts_name_the_outbound_policy():
    assert told(mesh_of(), "80.virtual_hosts[allow_any]", kind="route") == ((), ("allow-any",))
    closed = rule("outboundTrafficPolicy: {mode: REGISTRY_ONLY}", name="default", kind="Sidecar")
    assert told(mesh_of(sidecar=closed), "80.virtual_hosts[block_all]", kind="route") == (
        ("Sidecar shop/default (sidecar.yaml:1)",),
        ("outbound-policy-of-sidecar", "nearest-sidecar"),
    )


def test_routes_to_a_server_without_a_proxy_which_are_doubled_for_replays_name_their_own_lines():
    entry = rule(
        "hosts: [partner.test]\nresolution: DNS\nports: [{number: 80, name: http, protocol: HTTP}]",
        "partner",
        kind="ServiceEntry",
    )
    routes = """
hosts: [partner.test]
http:
- {name: first, match: [{uri: {prefix: /a}}], timeout: 3s, route: [{destination: {host: partner.test}}]}
- {name: second, timeout: 4s, route: [{destination: {host: partner.test}}]}
"""
    mesh = mesh_of(entry=entry, routes=virtual_service(routes, "partner"))
    for position, line in enumerate((7, 7, 8, 8)):
        found, _ = told(mesh, f"80.virtual_hosts[partner.test:80].routes[{position}].route.timeout", kind="route")
        assert found == (f"VirtualService shop/partner (routes.yaml:{line})",)
