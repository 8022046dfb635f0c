from analyze.meshes import WEB, istio, said

TUNNEL = "tunnel: {targetHost: far.example.com, targetPort: 443}"
RULE = istio("DestinationRule", f"{{host: web, trafficPolicy: {{{TUNNEL}}}}}")
DB = """---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {ports: [{name: tcp, port: 5432}]}
"""


def route(kind, *destinations):
    return istio("VirtualService", f"{{hosts: [db], {kind}: [{{route: [{', '.join(destinations)}]}}]}}")


def test_a_tunnel_that_connections_use_has_no_findings():
    assert said(WEB + DB + RULE + route("tcp", "{destination: {host: web}}")) == []
    assert said(WEB + DB + RULE.replace("host: web", "host: db")) == []


def test_a_tunnel_that_no_connection_uses_is_reported():
    (line,) = said(WEB + RULE)
    assert "no connection goes through the tunnel: web.shop.svc.cluster.local carries HTTP" in line


def test_an_http_route_to_a_tunnel_is_reported_and_one_to_a_subset_without_tunnel_is_not():
    http = DB.replace("name: tcp", "name: http")
    lines = said(WEB + http + RULE + route("http", "{destination: {host: web}}"))
    assert any("spec.http[0].route[0].destination: warning: requests of an http route do not go" in e for e in lines)
    subsets = istio(
        "DestinationRule",
        f"{{host: web, subsets: [{{name: v1, labels: {{version: v1}}, trafficPolicy: {{{TUNNEL}}}}},"
        " {name: v2, labels: {version: v2}}]}",
    )
    lines = said(WEB + http + subsets + route("http", "{destination: {host: web, subset: v2}}"))
    assert not any("http route" in line for line in lines)


def test_destinations_with_different_tunnels_are_reported():
    lines = said(
        WEB + DB + RULE + route("tcp", "{destination: {host: web}, weight: 1}", "{destination: {host: db}, weight: 99}")
    )
    assert any("different tunnels" in line for line in lines)
