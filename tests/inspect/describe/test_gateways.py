from tests.inspect.reasons.test_gateways import EDGE, TO_PAYMENTS
from tests.inspect.reasons.told import mesh_of, rule
from tests.inspect.test_closed_servers import EDGE as CLOSED

from authority import Authority
from gateway_rig import pair, secret
from weft.base.problem import Problem, Where
from weft.cli.read.trial_source import staged
from weft.files.documents import read_documents
from weft.inspect.describe.gateways import served
from weft.inspect.describe.pods_and_services import describe_pod
from weft.inspect.describe.text import pod_lines
from weft.inspect.stage import Stage
from weft.model.instance import Instance
from weft.model.names import ObjectKey, labels_of

POD = Instance("edge-0", "edge", ("10.1.0.9",), labels_of({"istio": "ingress"}), gateway=True)


def edge():
    mesh = mesh_of(
        public=rule(EDGE, "public", "edge", "Gateway"),
        a=rule(f"hosts: ['*.a.com']\n{TO_PAYMENTS}", "a", kind="VirtualService"),
        secret=pair("shop", Authority().issue("*.a.com")).removeprefix("---\n"),
        deny=rule("action: DENY\nrules: [{}]", "deny", "edge", "AuthorizationPolicy", "security"),
    )
    mesh.apply(ObjectKey("Pod", "edge", "edge-0"), (POD,))
    return mesh


def test_each_server_has_its_certificates_and_routes():
    plain, safe, https, files, tcp, lost = served(edge(), POD)
    assert [where.object for where in plain.routings] == ["VirtualService shop/a"]
    assert (safe.redirects, safe.routings) == (True, ())
    (shown,) = https.shows
    assert (shown.name, shown.hosts, shown.there) == ("Secret edge/shop", ("*.a.com",), True)
    assert shown.until.startswith("20")
    assert (files.tls, files.shows[0].name) == ("MUTUAL", "/a/crt")
    assert tcp.closed == "no VirtualService has `tcp` routes for it"
    assert not lost.shows[0].there


def test_a_gateway_is_described_by_what_it_serves():
    mesh = edge()
    lines = list(pod_lines(describe_pod(mesh, Stage(mesh), (), "edge-0")))
    assert "Gateway edge/public (public.yaml:1): port 443/HTTPS" in lines
    assert "   Hosts: *.a.com" in lines and "   TLS: SIMPLE" in lines
    assert (
        "      Presents Secret edge/lost, which does not exist or has no certificate: connections for these hosts are closed"
        in lines
    )
    assert "   VirtualServices: shop/a" in lines
    assert "   Redirects plain HTTP to HTTPS" in lines
    assert "   AuthorizationPolicy edge/deny (deny.yaml:1): DENY, 1 rule" in lines
    assert not [line for line in lines if "Mutual TLS" in line or line.startswith("Sidecar")]


def test_a_server_has_its_client_ca_and_tls_versions():
    servers = """
selector: {istio: ingress}
servers:
- port: {number: 443, name: a, protocol: HTTPS}
  bind: 10.1.0.9
  hosts: [a.com]
  tls: {mode: MUTUAL, credentialName: shop, subjectAltNames: [b.com], minProtocolVersion: TLSV1_3}
- port: {number: 444, name: b, protocol: HTTPS}
  hosts: [b.com]
  tls: {mode: OPTIONAL_MUTUAL, serverCertificate: /a/crt, privateKey: /a/key, caCertificates: /a/ca, caCrl: /a/crl}
- {port: {number: 445, name: c, protocol: HTTPS}, hosts: [c.com], tls: {mode: MUTUAL, credentialName: bare}}
"""
    shown = Authority().issue("a.com")
    mesh = mesh_of(
        public=rule(servers, "public", "edge", "Gateway"),
        secret=pair("shop", shown).removeprefix("---\n"),
        beside=secret("shop-cacert", "Opaque", cacert=shown.root).removeprefix("---\n"),
        bare=pair("bare", shown).removeprefix("---\n"),
    )
    mesh.apply(ObjectKey("Pod", "edge", "edge-0"), (POD,))
    lines = list(pod_lines(describe_pod(mesh, Stage(mesh), (), "edge-0")))
    assert "Gateway edge/public (public.yaml:1): port 443/HTTPS, only at 10.1.0.9" in lines
    assert "   TLS: MUTUAL, TLSV1_3 at least" in lines
    assert [line for line in lines if "Callers" in line] == [
        "      Callers must present a certificate from Secret edge/shop-cacert, accepted only for b.com",
        "      Callers may present a certificate from /a/ca, except those revoked in /a/crl",
        "      Callers must present a certificate from an unknown CA: connections for these hosts are closed",
    ]


def test_a_pod_that_is_not_a_gateway_serves_nothing():
    assert served(edge(), Instance("web-0", "shop", ())) == ()


def told(text, word="edge", problems=()):
    stage, _ = staged(read_documents(text.encode(), "edge.yaml").documents)
    return list(pod_lines(describe_pod(stage.mesh, stage, problems, word)))


def test_a_left_out_server_has_its_reason_and_a_tcp_server_without_routes_is_closed():
    lines = told(CLOSED.replace("NAME", "aaa"))
    at = lines.index("Gateway edge/public (edge.yaml:14): port 80/HTTP, left out")
    assert lines[at + 1 : at + 3] == [
        "   Hosts: shop.example",
        "   Not served: Gateway edge/aaa uses port 80 for TCP",
    ]
    assert "   VirtualServices: none, so connections are closed" in lines
    assert not [line for line in lines if "404" in line]
    routed = """---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: ["*"], gateways: [edge/aaa], http: [{route: [{destination: {host: web}}]}]}
"""
    lines = told(CLOSED.replace("NAME", "aaa") + routed)
    bytes_too = routed.replace("name: web", "name: bytes").replace("http:", "tcp:")
    assert "   VirtualServices: shop/bytes" in told(CLOSED.replace("NAME", "aaa") + routed + bytes_too)
    assert "   Closed: no VirtualService has `tcp` routes for it" in lines


ATTACHED = """
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: edge, namespace: edge, labels: {gateway.networking.k8s.io/gateway-name: public}}
spec: {gateway: {}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: edge}
spec: {gatewayClassName: weft, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: edge}
spec: {parentRefs: [{name: public}], hostnames: [web.example], rules: [{backendRefs: [{name: web, port: 80}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: inside, namespace: edge}
spec: {parentRefs: [{group: "", kind: Service, name: web}], rules: [{backendRefs: [{name: web, port: 80}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: edge}
spec: {selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: web, namespace: edge, labels: {app: web}}
spec: {command: [serve]}
"""


def test_gateway_api_objects_are_shown_by_their_own_kinds():
    wrong = Problem(Where("edge.yaml", 6, "Gateway.gateway.networking.k8s.io edge/public"), "something is wrong")
    lines = told(ATTACHED, problems=(wrong,))
    assert "Gateway edge/public (edge.yaml:7), listener http: port 80/HTTP" in lines
    assert "   Routes: HTTPRoute edge/web" in lines
    assert any("something is wrong" in line for line in lines)
    lines = told(ATTACHED, "web")
    at = "not in force for sidecars of its namespace, at gateway edge/public (listener http)"
    assert f"   HTTPRoute: edge/web (edge.yaml:12), {at}" in lines
    assert "   HTTPRoute: edge/inside (edge.yaml:17)" in lines
