"""What a control plane would say, said without one."""

import pytest

from analyze.meshes import WEB, istio
from weft.files.documents import read_documents
from weft.inspect.rehearse.rehearsal import rehearse

ROUTE = "{hosts: [web], http: [{route: [{destination: {host: %s}}]}]}"


def said(text):
    return [str(problem).partition(": ")[2] for problem in rehearse(read_documents(text.encode(), "m.yaml").documents)]


def to(destination):
    return istio("VirtualService", ROUTE.replace("%s", destination))


def test_a_mesh_that_fits_is_well():
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
def test_what_translation_would_find_is_found(destination, what):
    (line,) = said(WEB + to(destination))
    assert what in line


def test_what_the_analysis_would_find_is_found():
    (line,) = said(WEB + istio("DestinationRule", "{host: wbe}"))
    assert "spec.host: warning [WFT0201]: " in line


def test_routes_are_looked_at_where_nothing_runs_too():
    (line,) = said(WEB.partition("---")[0] + to("wbe"))
    assert "does not exist" in line


def test_a_route_leads_where_a_sidecar_does_not_show_and_not_to_what_is_not_exported():
    other = WEB.partition("---")[0].replace("namespace: shop", "namespace: other").replace("{app: web}", "{}")
    sidecar = istio("Sidecar", "{egress: [{hosts: ['./*']}]}")
    route = sidecar + to("web.other.svc.cluster.local")
    assert not said(f"{WEB}---{other}" + route)
    hidden = other.replace("namespace: other", "namespace: other, annotations: {networking.istio.io/exportTo: .}")
    (line,) = said(f"{WEB}---{hidden}" + route)
    assert "is hidden from namespace shop" in line


def test_an_error_is_said_alone_and_not_again_for_all_who_refer_to_its_object():
    (line,) = said(
        WEB.replace("targetPort: 8080", "targetPort: 0") + to("web") + istio("DestinationRule", "{host: web}")
    )
    assert line.startswith("Service shop/web: spec.ports[0].targetPort: error: ")
    (line,) = said(
        WEB.replace("metadata: {name: web-v1", "bogus: 1\nmetadata: {name: web-v1").replace("web-v2", "web-v1")
    )
    assert "unknown field `bogus`" in line


def test_a_host_is_looked_at_from_every_namespace_that_may_see_it_in_another_way():
    """Exported to one namespace by name: from there it is well, from a third it is hidden."""
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


def test_a_sidecar_is_asked_only_about_what_it_shows():
    bank = WEB.replace("namespace: shop", "namespace: bank")
    sidecars = istio("Sidecar", "{egress: [{hosts: ['./*', 'bank/*']}]}") + istio(
        "Sidecar", "{egress: [{hosts: ['./*']}]}", namespace="bank"
    )
    rule = istio(
        "VirtualService", "{hosts: [web], http: [{route: [{destination: {host: web.bank.svc.cluster.local}}]}]}"
    )
    assert said(f"{WEB}---{bank}" + sidecars + rule) == []
