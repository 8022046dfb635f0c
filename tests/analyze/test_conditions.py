"""Matches that nobody meets: WFT0118, WFT0119 have the plain cases."""

from analyze.meshes import WEB, istio, said

SPEC = "{hosts: [web], http: [{match: [%s], redirect: {authority: a.com}}]}"
GATEWAY = istio("Gateway", "{servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}", name="edge")


def found(match, more=""):
    return said(WEB + more + istio("VirtualService", SPEC.replace("%s", match)))


def test_the_hint_lists_the_existing_ports():
    (line,) = found("{port: 8080}")
    assert "web.shop.svc.cluster.local has no port 8080 (hint: it has 80)" in line


def test_source_labels_are_checked_in_the_named_namespace():
    assert found("{sourceNamespace: shop, sourceLabels: {version: v1}}") == []
    other = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: bank}\n"
    (line,) = found("{sourceNamespace: bank, sourceLabels: {version: v1}}", other)
    assert "no workload has the labels version=v1" in line


def test_matches_only_for_gateways_are_not_checked():
    spec = "{hosts: [web], gateways: [mesh, edge], http: [{match: [{gateways: [edge], port: 443}], redirect: {authority: a.com}}]}"
    assert said(WEB + GATEWAY + istio("VirtualService", spec)) == []


def test_without_workloads_callers_are_not_checked():
    service = WEB.partition("---")[0]
    assert said(service + istio("VirtualService", SPEC.replace("%s", "{sourceLabels: {app: x}}"))) == []
