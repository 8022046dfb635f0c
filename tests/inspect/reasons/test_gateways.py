import pytest
from tests.inspect.reasons.told import CLUSTER, mesh_of, rule, told

from authority import Authority
from gateway_rig import pair, secret
from weft.api.parse import parse
from weft.files.documents import read_documents
from weft.inspect.ask.why import every
from weft.inspect.stage import Stage
from weft.model.instance import Instance
from weft.model.names import ObjectKey, labels_of

EDGE = """
selector: {istio: ingress}
servers:
- {port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}
- {port: {number: 80, name: safe, protocol: HTTP}, hosts: [safe.com], tls: {httpsRedirect: true}}
- {port: {number: 443, name: https, protocol: HTTPS}, hosts: ["*.a.com"], tls: {mode: SIMPLE, credentialName: shop}}
- port: {number: 443, name: files, protocol: HTTPS}
  hosts: [files.a.com]
  tls: {mode: MUTUAL, serverCertificate: /a/crt, privateKey: /a/key, caCertificates: /a/ca}
- {port: {number: 9000, name: tcp, protocol: TCP}, hosts: ["*"]}
- {port: {number: 443, name: lost, protocol: HTTPS}, hosts: [lost.com], tls: {mode: SIMPLE, credentialName: lost}}
"""
TO_PAYMENTS = "gateways: [edge/public]\nhttp: [{route: [{destination: {host: payments.shop.svc.cluster.local}}]}]"
PUBLIC = "Gateway edge/public (public.yaml:1)"


@pytest.fixture
def mesh():
    made = mesh_of(
        public=rule(EDGE, "public", "edge", "Gateway"),
        a=rule(f"hosts: ['*.a.com', safe.com]\n{TO_PAYMENTS}", "a", kind="VirtualService"),
        b=rule(f"hosts: ['*.a.com']\n{TO_PAYMENTS}", "b", kind="VirtualService"),
        bytes=rule(f"hosts: ['*']\n{TO_PAYMENTS.replace('http:', 'tcp:')}", "bytes", kind="VirtualService"),
        secret=pair("shop", Authority().issue("*.a.com")).removeprefix("---\n"),
        deny=rule("action: DENY\nrules: [{}]", "deny", "edge", "AuthorizationPolicy", "security"),
    )
    pod = Instance("edge-0", "edge", ("10.1.0.9",), labels_of({"istio": "ingress"}), gateway=True)
    made.apply(ObjectKey("Pod", "edge", "edge-0"), (pod,))
    return made


@pytest.mark.parametrize(
    ("kind", "resource", "sources", "by"),
    [
        ("listener", "0.0.0.0_80", (PUBLIC,), ("gateway-listener",)),
        ("listener", "0.0.0.0_80.filter_chains[0]", (PUBLIC,), ("first-gateway",)),
        (
            "listener",
            "0.0.0.0_9000.filter_chains[0]",
            (PUBLIC, "VirtualService shop/bytes (bytes.yaml:1)"),
            ("first-gateway",),
        ),
        (
            "listener",
            "0.0.0.0_443.filter_chains[https.443.lost.public.edge]",
            (PUBLIC,),
            ("first-gateway", "missing-credential"),
        ),
        ("route", "http.80", (PUBLIC,), ("gateway-listener",)),
        (
            "route",
            "http.80.virtual_hosts[*.a.com:80]",
            ("VirtualService shop/a (a.yaml:1)", "VirtualService shop/b (b.yaml:1)"),
            ("merged-at-gateway",),
        ),
        (
            "route",
            "http.80.virtual_hosts[safe.com:80]",
            ("VirtualService shop/a (a.yaml:1)",),
            ("https-alone",),
        ),
        ("route", "http.80.virtual_hosts[nobody]", (), ("unknown-at-gateway",)),
        (
            "route",
            "https.443.https.public.edge.virtual_hosts[files.a.com:443]",
            (),
            ("name-of-another-server",),
        ),
        ("secret", "kubernetes://shop", ("Secret edge/shop (secret.yaml:1)",), ("out-of-secret",)),
        ("secret", "file-root:/a/ca", (PUBLIC,), ("files-of-server",)),
    ],
)
def test_each_part_names_its_objects_and_rules(mesh, kind, resource, sources, by):
    assert told(mesh, resource, "edge-0.edge", kind) == (sources, by)


def test_a_credential_of_a_destination_rule_names_its_secret(mesh):
    text = rule("host: payments\ntrafficPolicy: {tls: {mode: SIMPLE, credentialName: partner}}")
    for file, written in (
        ("rule", text),
        ("partner", secret("partner", "Opaque", ca_crt=Authority().issue("a.com").root).removeprefix("---\n")),
    ):
        (document,) = read_documents(written.encode(), f"{file}.yaml").documents
        mesh.apply(document.key, parse(document).values)
    assert told(mesh, f"{CLUSTER}/roots", "edge-0.edge", "secret") == (
        ("Secret edge/partner (partner.yaml:1)", "DestinationRule shop/payments (rule.yaml:1)"),
        ("out-of-secret",),
    )


def test_the_policies_in_each_filter_chain_are_named(mesh):
    (found,) = [each for each in every(mesh, Stage(mesh), "edge-0.edge", "listener") if each.name == "0.0.0.0_80"]
    (policy,) = [part for part in found.parts if part.path.endswith("policies[ns[edge]-policy[deny]-rule[0]]")]
    assert policy.sources == ("AuthorizationPolicy edge/deny rule[0] (deny.yaml:6)",)


def test_every_resource_of_a_gateway_has_reasons(mesh):
    for kind in ("listener", "route", "cluster", "endpoints", "secret"):
        for found in every(mesh, Stage(mesh), "edge-0.edge", kind):
            assert found.parts[0].rules, (kind, found.name)
