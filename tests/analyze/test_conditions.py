"""Matches that nobody meets: WFT0118, WFT0119 have the plain cases."""

from analyze.meshes import WEB, istio, said

SPEC = "{hosts: [web], http: [{match: [%s], redirect: {authority: a.com}}]}"
GATEWAY = istio("Gateway", "{servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}", name="edge")


def found(match, more=""):
    return said(WEB + more + istio("VirtualService", SPEC.replace("%s", match)))


def test_the_hint_names_the_ports_there_are():
    (line,) = found("{port: 8080}")
    assert "web.shop.svc.cluster.local has no port 8080 (hint: it has 80)" in line


def test_labels_are_looked_for_in_the_namespace_that_is_named():
    assert found("{sourceNamespace: shop, sourceLabels: {version: v1}}") == []
    other = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: bank}\n"
    (line,) = found("{sourceNamespace: bank, sourceLabels: {version: v1}}", other)
    assert "no workload has the labels version=v1" in line


def test_what_comes_through_a_gateway_only_is_for_others_to_know():
    spec = "{hosts: [web], gateways: [mesh, edge], http: [{match: [{gateways: [edge], port: 443}], redirect: {authority: a.com}}]}"
    assert said(WEB + GATEWAY + istio("VirtualService", spec)) == []


def test_where_nothing_runs_nobody_knows_who_calls():
    service = WEB.partition("---")[0]
    assert said(service + istio("VirtualService", SPEC.replace("%s", "{sourceLabels: {app: x}}"))) == []
