from analyze.meshes import WEB, istio, said

TO = "{destination: {host: web, port: {number: 80}}}"
HTTP = "http: [{route: [{destination: {host: web}}]}]"
GATEWAY = istio("Gateway", "{servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}", name="edge")


def test_routes_for_existing_hosts_have_no_findings():
    assert said(WEB + istio("VirtualService", f"{{hosts: [web], {HTTP}}}")) == []
    assert said(WEB + istio("VirtualService", f"{{hosts: ['*.shop.svc.cluster.local'], {HTTP}}}")) == []
    root = istio("VirtualService", "{hosts: [web], http: [{delegate: {name: x}}]}", name="root")
    assert said(WEB + root + istio("VirtualService", f"{{{HTTP}}}")) == []  # a delegate
    assert said(WEB + istio("VirtualService", f"{{hosts: [192.0.2.9], {HTTP}}}")) == []


def test_a_missing_host_is_reported_with_a_guess():
    (line,) = said(WEB + istio("VirtualService", f"{{hosts: [wbe], {HTTP}}}"))
    assert "VirtualService shop/x: spec.hosts[0]: warning: no Service or ServiceEntry has the host wbe.shop" in line
    assert "did you mean `web.shop.svc.cluster.local`?" in line


def test_for_an_external_host_the_hint_names_the_service_entry():
    (line,) = said(WEB + istio("VirtualService", f"{{hosts: [shop.example.com], {HTTP}}}"))
    assert "if the host is outside the mesh, add a ServiceEntry for it" in line


def test_tls_and_tcp_routes_of_a_missing_host_are_reported_as_never_used():
    tls = "tls: [{match: [{sniHosts: [shop.example.com]}], route: [{destination: {host: web}}]}]"
    (line,) = said(WEB + istio("VirtualService", f"{{hosts: [shop.example.com], {tls}}}"))
    assert "no Service or ServiceEntry has the host shop.example.com: its tls routes are never used" in line


def test_a_missing_gateway_is_reported_with_a_guess():
    (line,) = said(WEB + GATEWAY + istio("VirtualService", f"{{hosts: [web], gateways: [egde], {HTTP}}}"))
    assert "spec.gateways[0]: warning: the gateway shop/egde does not exist (hint: did you mean `shop/edge`?)" in line


def test_a_missing_gateway_in_a_match_is_reported_once():
    to = "route: [{destination: {host: web}}]"

    def routing(gateways, matched):
        spec = f"{{hosts: [web], gateways: [{gateways}], http: [{{match: [{{gateways: [{matched}]}}], {to}}}]}}"
        return said(WEB + GATEWAY + istio("VirtualService", spec))

    (line,) = routing("edge, mesh", "edge, egde")
    assert "spec.http[0].match[0].gateways[1]: warning: the gateway shop/egde does not exist" in line
    assert "did you mean `shop/edge`?" in line
    assert routing("edge, mesh", "edge, mesh") == []
    (line,) = routing("egde, mesh", "egde")
    assert "spec.gateways[0]" in line


def test_routes_only_for_gateways_have_no_findings():
    assert said(WEB + GATEWAY + istio("VirtualService", f"{{hosts: [a.com], gateways: [edge], {HTTP}}}")) == []
    assert said(WEB + GATEWAY + istio("VirtualService", f"{{hosts: [web], gateways: [edge, mesh], {HTTP}}}")) == []


BOTH = WEB.replace("targetPort: 8080}", "targetPort: 8080}, {name: tcp, port: 90, targetPort: 8080}").replace(
    "8080", "80"
)


def test_a_match_for_a_port_that_carries_another_protocol_is_reported():
    def routing(kind, match, gateways="mesh"):
        spec = f"{{hosts: [web], gateways: [{gateways}], {kind}: [{{match: [{match}], route: [{TO}]}}]}}"
        return [line for line in said(BOTH + GATEWAY + istio("VirtualService", spec)) if "VirtualService" in line]

    (line,) = routing("tcp", "{port: 80}")
    assert "spec.tcp[0].match[0].port: warning: port 80 of web.shop.svc.cluster.local carries http" in line
    (line,) = routing("http", "{port: 90}")
    assert "port 90 of web.shop.svc.cluster.local carries tcp, and this match is in the http routes" in line
    assert routing("tcp", "{port: 90}") == routing("http", "{port: 80}") == []
    assert routing("tcp", "{port: 80}", gateways="mesh, edge") == [], "the gateway's port 80 may be another one"
    (line,) = routing("tls", "{port: 80, sniHosts: [web]}")
    assert "no port of web.shop.svc.cluster.local carries tls" in line, "and of each match not again"


def test_a_protocol_that_a_sidecar_declares_counts_for_the_port():
    egress = "{egress: [{port: {number: 80, name: x, protocol: TCP}, hosts: [./web.shop.svc.cluster.local]}]}"
    streams = istio("VirtualService", f"{{hosts: [web], tcp: [{{match: [{{port: 80}}], route: [{TO}]}}]}}")
    assert len(said(BOTH + streams)) == len(said(BOTH + istio("Sidecar", egress) + streams)) + 1
