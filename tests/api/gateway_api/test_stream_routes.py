from api.gateway_api.objects import standard
from api.reading import told, value
from weft.model.gateway_api import RouteKind

RULES = "rules: [{backendRefs: [{name: db, port: 5432, weight: 3}]}]"


def test_stream_routes_have_one_rule():
    tcp = value(standard("TCPRoute", f"parentRefs: [{{name: edge}}]\n{RULES}", "v1alpha2"))
    assert (tcp.kind, tcp.rules[0].backends[0].weight) == (RouteKind.TCP, 3)
    tls = value(standard("TLSRoute", f"parentRefs: [{{name: edge}}]\nhostnames: [a.b]\n{RULES}", "v1alpha3"))
    assert (tls.kind, tls.hostnames) == (RouteKind.TLS, ("a.b",))
    two = (
        "parentRefs: [{name: edge}]\nrules: [{backendRefs: [{name: a, port: 1}]}, {backendRefs: [{name: b, port: 1}]}]"
    )
    assert told(standard("TCPRoute", two)) == [
        "6 a TCPRoute can have one rule (write a separate TCPRoute for each rule)"
    ]


def test_tcp_routes_have_no_hostnames_and_rules_need_backends():
    assert len(told(standard("TCPRoute", f"parentRefs: [{{name: edge}}]\nhostnames: [a.b]\n{RULES}"))) == 1
    assert told(standard("TLSRoute", "parentRefs: [{name: edge}]\nrules: [{}]")) == ["6 the rule has no `backendRefs`"]
