import pytest
from tests.inspect.reasons.told import mesh_of, rule, told

from authority import Authority
from gateway_rig import pair
from weft.inspect.reasons.gateway_api import route_rules
from weft.model.group import group_of
from weft.model.instance import Instance
from weft.model.names import ObjectKey, labels_of
from weft.model.virtual_service import HttpRoute
from weft.translate.gateway_tls import roots_name
from weft.translate.view import group_view

GROUP = "gateway.networking.k8s.io"
ROOT = Authority().issue("a.com").root.decode()
STD = {f"{GROUP}/gateway-name": "std"}


def standard(kind, name, spec, namespace="shop"):
    return f"apiVersion: {GROUP}/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {spec}\n"


def service_route(name, rules, namespace="shop", parent=""):
    parent = f'{{group: "", kind: Service, name: payments, namespace: shop{parent}}}'
    return standard("HTTPRoute", name, f"{{parentRefs: [{parent}], rules: {rules}}}", namespace)


def to(name="payments", path="/"):
    return f"{{matches: [{{path: {{value: {path}}}}}], backendRefs: [{{name: {name}, namespace: shop, port: 80}}]}}"


HOST = "80.virtual_hosts[payments.shop.svc.cluster.local:80]"
ROUTED = "payments.shop.svc.cluster.local:80.virtual_hosts[payments.shop.svc.cluster.local:80]"
WRITTEN = rule("hosts: [payments]\nhttp: [{route: [{destination: {host: payments}}]}]", "v", kind="VirtualService")


@pytest.mark.parametrize(
    ("files", "resource", "sources", "by"),
    [
        (
            {"own": service_route("own", f"[{to()}, {to(path='/a')}]")},
            f"{ROUTED}.routes[shop.own.1]",
            ("HTTPRoute shop/own (own.yaml:4)",),
            ("standard-order",),
        ),
        (
            {"own": service_route("own", f"[{to('nobody')}]")},
            f"{ROUTED}.routes[shop.own.0]",
            ("HTTPRoute shop/own (own.yaml:4)",),
            ("standard-order", "nobody-to-send-to"),
        ),
        (
            {"own": service_route("own", f"[{to()}]"), "written": WRITTEN},
            HOST,
            ("Service shop/payments (service.yaml:2)", "VirtualService shop/v (written.yaml:1)"),
            ("virtual-service-first",),
        ),
    ],
)
def test_routes_of_a_service_name_their_order_of_precedence(files, resource, sources, by):
    found = told(mesh_of(**files), resource, kind="route")
    assert (found[0], found[1]) == (sources, by)


def test_a_consumer_route_takes_precedence_over_the_producers():
    mesh = mesh_of(own=service_route("own", f"[{to()}]"), theirs=service_route("theirs", f"[{to()}]", "far"))
    mesh.apply(ObjectKey("Pod", "far", "caller-0"), (Instance("caller-0", "far", ("10.1.9.9",), meshed=True),))
    found, by = told(mesh, ROUTED, "caller-0.far", "route")
    assert "HTTPRoute far/theirs (theirs.yaml:1)" in found
    assert by == ("consumers-first",)


def bundle(name, namespace):
    text = "\n".join(f"    {line}" for line in ROOT.splitlines())
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\ndata:\n  ca.crt: |\n{text}"


POLICY = standard(
    "BackendTLSPolicy",
    "payments",
    '{targetRefs: [{group: "", kind: Service, name: payments}],'
    ' validation: {hostname: a.com, caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]}}',
)
CLUSTER = "outbound|80||payments.shop.svc.cluster.local"


@pytest.mark.parametrize(
    "files", [{}, {"pool": rule("host: payments\ntrafficPolicy: {connectionPool: {tcp: {maxConnections: 9}}}")}]
)
def test_tls_to_a_service_names_its_backend_tls_policy(files):
    mesh = mesh_of(policy=POLICY, ca=bundle("ca", "shop"), **files)
    said = ("BackendTLSPolicy shop/payments validation (policy.yaml:1)",)
    found = told(mesh, f"{CLUSTER}.transport_socket", kind="cluster")
    assert (found[0], found[1]) == (said, ("tls-by-policy",))
    found = told(mesh, f"{CLUSTER}/roots", kind="secret")
    assert found[0] == ("ConfigMap shop/ca (ca.yaml:1)", *said)
    assert found[1] == ("roots-out-of-config-map",)


def test_a_backend_tls_policy_without_roots_closes_the_cluster():
    found = told(mesh_of(policy=POLICY), f"{CLUSTER}.type", kind="cluster")
    assert (found[0], found[1]) == (
        ("BackendTLSPolicy shop/payments validation (policy.yaml:1)",),
        ("policy-without-roots",),
    )


def test_tls_of_a_destination_rule_overrides_a_backend_tls_policy():
    mesh = mesh_of(
        policy=POLICY, ca=bundle("ca", "shop"), own=rule("host: payments\ntrafficPolicy: {tls: {mode: SIMPLE}}")
    )
    found, by = told(mesh, f"{CLUSTER}.transport_socket", kind="cluster")
    assert found == ("DestinationRule shop/payments trafficPolicy.tls (own.yaml:6)",)
    assert by == ("tls-by-rule",)


@pytest.fixture
def edge():
    listener = (
        "name: a, port: 443, protocol: HTTPS, hostname: a.com, tls: {certificateRefs: [{name: a, namespace: edge}]}"
    )
    validation = '{caCertificateRefs: [{group: "", kind: ConfigMap, name: callers}]}'
    made = mesh_of(
        gateway=standard(
            "Gateway",
            "std",
            f"{{gatewayClassName: weft, listeners: [{{{listener}}}],"
            f" tls: {{frontend: {{default: {{validation: {validation}}}}}}}}}",
        ),
        grant=standard(
            "ReferenceGrant",
            "a",
            f'{{from: [{{group: {GROUP}, kind: Gateway, namespace: shop}}], to: [{{group: "", kind: Secret}}]}}',
            "edge",
        ).replace("/v1\n", "/v1beta1\n"),
        secret=pair("a", Authority().issue("a.com")).removeprefix("---\n"),
        callers=bundle("callers", "shop"),
    )
    pod = Instance("std-0", "shop", ("10.1.0.9",), labels_of(STD), gateway=True)
    made.apply(ObjectKey("Pod", "shop", "std-0"), (pod,))
    return made


def test_a_secret_of_another_namespace_names_its_reference_grant(edge):
    found, by = told(edge, "kubernetes-gateway://edge/a", "std-0.shop", "secret")
    assert found == ("Secret edge/a (secret.yaml:1)", "ReferenceGrant edge/a (grant.yaml:1)")
    assert by == ("granted-secret",)


def test_client_ca_certificates_name_their_config_map(edge):
    (pod,) = edge.get(ObjectKey("Pod", "shop", "std-0"))
    (served,) = group_view(edge, group_of(pod)).servers
    found, by = told(edge, roots_name(served.bound.server.tls.roots), "std-0.shop", "secret")
    assert found == (
        "ConfigMap shop/callers (callers.yaml:1)",
        "Gateway.gateway.networking.k8s.io shop/std (gateway.yaml:1)",
    )
    assert by == ("roots-out-of-config-map",)


def test_a_route_outside_the_gateway_api_has_no_gateway_api_rules():
    assert route_rules(HttpRoute()) == ()
