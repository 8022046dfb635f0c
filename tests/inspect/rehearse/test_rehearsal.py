"""Tests of the problems that a control plane would report, without running one."""

import pytest

from analyze.meshes import WEB, istio
from weft.files.documents import read_documents
from weft.inspect.rehearse.rehearsal import rehearse

ROUTE = "{hosts: [web], http: [{route: [{destination: {host: %s}}]}]}"


def said(text):
    return [str(problem).partition(": ")[2] for problem in rehearse(read_documents(text.encode(), "m.yaml").documents)]


def to(destination):
    return istio("VirtualService", ROUTE.replace("%s", destination))


def test_a_consistent_mesh_has_no_problems():
    rule = "{host: web, subsets: [{name: v1, labels: {version: v1}}]}"
    assert said(WEB + to("web, subset: v1, port: {number: 80}") + istio("DestinationRule", rule)) == []


@pytest.mark.parametrize(
    ("destination", "what"),
    [
        ("wbe", "destination wbe.shop.svc.cluster.local does not exist"),
        ("web, subset: v2", "has no subset 'v2'"),
        ("web, port: {number: 81}", "has no port 81"),
    ],
)
def test_problems_of_translation_are_found(destination, what):
    (line,) = said(WEB + to(destination))
    assert what in line


def test_findings_of_the_analysis_are_found():
    (line,) = said(WEB + istio("DestinationRule", "{host: wbe}"))
    assert "spec.host: warning [WFT0201]: " in line


def test_routes_are_checked_without_workloads():
    (line,) = said(WEB.partition("---")[0] + to("wbe"))
    assert "does not exist" in line


def test_a_route_may_lead_to_a_service_hidden_by_a_sidecar_but_not_to_an_unexported_one():
    other = WEB.partition("---")[0].replace("namespace: shop", "namespace: other").replace("{app: web}", "{}")
    sidecar = istio("Sidecar", "{egress: [{hosts: ['./*']}]}")
    route = sidecar + to("web.other.svc.cluster.local")
    assert not said(f"{WEB}---{other}" + route)
    hidden = other.replace("namespace: other", "namespace: other, annotations: {networking.istio.io/exportTo: .}")
    (line,) = said(f"{WEB}---{hidden}" + route)
    assert "is hidden from namespace shop" in line


def test_an_error_is_not_repeated_for_references_to_its_object():
    (line,) = said(
        WEB.replace("targetPort: 8080", "targetPort: 0") + to("web") + istio("DestinationRule", "{host: web}")
    )
    assert line.startswith("Service shop/web: spec.ports[0].targetPort: error: ")
    (line,) = said(
        WEB.replace("metadata: {name: web-v1", "bogus: 1\nmetadata: {name: web-v1").replace("web-v2", "web-v1")
    )
    assert "unknown field `bogus`" in line


def test_a_host_is_translated_for_every_namespace_with_a_different_view():
    """The host is exported to one namespace by name: it is visible from there, and hidden from a third namespace."""
    place = "namespace: shop"
    bank, pub = (WEB.replace(place, f"namespace: {name}") for name in ("bank", "pub"))
    rule = istio(
        "VirtualService", "{hosts: [web], http: [{route: [{destination: {host: web.bank.svc.cluster.local}}]}]}"
    )
    limited = bank.replace(
        "{name: web, namespace: bank}",
        "{name: web, namespace: bank, annotations: {networking.istio.io/exportTo: 'shop,bank'}}",
    )
    (line,) = said(f"{WEB}---{limited}---{pub}" + rule)
    assert "destination web.bank.svc.cluster.local is hidden from namespace pub" in line
    everywhere = limited.replace("'shop,bank'", "'shop,pub,bank'")
    assert said(f"{WEB}---{everywhere}---{pub}" + rule) == []


def test_groups_with_a_sidecar_are_translated_only_for_hosts_it_shows():
    bank = WEB.replace("namespace: shop", "namespace: bank")
    sidecars = istio("Sidecar", "{egress: [{hosts: ['./*', 'bank/*']}]}") + istio(
        "Sidecar", "{egress: [{hosts: ['./*']}]}", namespace="bank"
    )
    rule = istio(
        "VirtualService", "{hosts: [web], http: [{route: [{destination: {host: web.bank.svc.cluster.local}}]}]}"
    )
    assert said(f"{WEB}---{bank}" + sidecars + rule) == []
