"""VirtualServices at gateways: what is never met, never used, and leads nowhere."""

import pytest

from analyze.meshes import WEB, facts, istio
from weft.analyze.gateway_routes import of_gateway_routes

PASSED = "{port: {number: 443, name: tls, protocol: TLS}, hosts: [%s], tls: {mode: PASSTHROUGH}}"
ENDED = "{port: {number: 443, name: https, protocol: HTTPS}, hosts: [%s], tls: {mode: SIMPLE, credentialName: c}}"
PLAIN = "{port: {number: 80, name: http, protocol: HTTP}, hosts: [%s]}"
BYTES = "{port: {number: 9000, name: tcp, protocol: TCP}, hosts: [%s]}"
WEB_HOST = "web.shop.svc.cluster.local"


def gateway(*servers):
    return istio("Gateway", f"{{selector: {{app: web}}, servers: [{', '.join(servers)}]}}", "edge", "edge")


def routing(routes, host="a.com", gateways="edge/edge", namespace="shop"):
    return istio("VirtualService", f"{{hosts: [{host}], gateways: [{gateways}], {routes}}}", "x", namespace)


def http(host=WEB_HOST):
    return f"http: [{{route: [{{destination: {{host: {host}}}}}]}}]"


def tls(host=WEB_HOST, more=""):
    return f"tls: [{{match: [{{sniHosts: [a.com]}}], route: [{{destination: {{host: {host}{more}}}}}]}}]"


def tcp(host=WEB_HOST, more=""):
    return f"tcp: [{{route: [{{destination: {{host: {host}{more}}}}}]}}]"


def found(text):
    return [(each.code, each.where.field) for each in of_gateway_routes(facts(WEB + text))]


@pytest.mark.parametrize(
    ("server", "right"), [(PASSED, tls()), (ENDED, http()), (PLAIN, http()), (BYTES, tcp())], ids=str.lower
)
def test_a_server_uses_routes_of_one_kind(server, right):
    for routes in (http(), tls(), tcp()):
        wrong = [] if routes == right else [("WFT0120", f"spec.{routes.partition(':')[0]}")]
        assert found(gateway(server % "a.com") + routing(routes)) == wrong


def test_routes_that_one_server_of_the_host_uses_are_not_reported():
    both = gateway(PLAIN % "a.com", PASSED % "a.com")
    assert found(both + routing(f"{http()}, {tls()}")) == []
    assert found(gateway(PASSED % "a.com") + routing(http(), gateways="edge/edge, mesh")) == []


def test_the_star_host_of_a_tcp_server_does_not_hide_an_unserved_http_host():
    beside = gateway(PLAIN % "b.com", BYTES % "'*'")
    assert found(beside + routing(http())) == [("WFT0122", "spec.hosts[0]")]
    assert found(beside + routing(http(), host="b.com, a.com")) == [("WFT0122", "spec.hosts[1]")]
    assert found(beside + routing(tcp())) == []
    assert found(gateway(BYTES % "'*'") + routing(http())) == [("WFT0120", "spec.http")]


def test_a_host_that_is_reserved_for_another_namespace_is_reported():
    one = gateway(PLAIN % "shop/a.com")
    assert found(one + routing(http())) == []
    assert found(one + routing(http(), namespace="other")) == [("WFT0122", "spec.hosts[0]")]
    (problem,) = of_gateway_routes(facts(WEB + one + routing(http(), namespace="other")))
    assert "accepts routes for a.com only from namespace shop" in problem.what
    assert found(gateway(PLAIN % "./a.com") + routing(http())) == [("WFT0122", "spec.hosts[0]")]
    assert found(gateway(PLAIN % "'*/a.com'") + routing(http())) == []


@pytest.mark.parametrize(("server", "routes"), [(PASSED, tls), (BYTES, tcp)])
def test_tcp_routes_to_missing_destinations_are_reported(server, routes):
    at = gateway(server % "a.com")
    assert found(at + routing(routes("wbe.shop.svc.cluster.local"))) == [("WFT0104", "")]
    (problem,) = of_gateway_routes(facts(WEB + at + routing(routes("wbe.shop.svc.cluster.local"))))
    assert problem.what.endswith("does not exist: connections sent there are closed")
    assert WEB_HOST in problem.hint
    assert found(at + routing(routes(more=", port: {number: 81}"))) == [("WFT0106", "")]
    assert found(at + routing(routes(more=", subset: v9"))) == [("WFT0107", "")]
