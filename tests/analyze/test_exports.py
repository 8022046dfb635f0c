"""`exportTo`: the case of WFT0406 has the plain one."""

from analyze.meshes import WEB, facts, istio
from weft.analyze.exports import of_exports

RULE = "{host: web, exportTo: [%s]}"


def found(text):
    return [problem.where.field for problem in of_exports(facts(text))]


def test_wildcards_and_namespaces_with_workloads_have_no_findings():
    bank = WEB.replace("namespace: shop", "namespace: bank")
    assert found(f"{WEB}---{bank}" + istio("DestinationRule", RULE.replace("%s", "., bank"))) == []
    assert found(WEB + istio("DestinationRule", RULE.replace("%s", "'*'"))) == []


def test_a_services_annotation_is_checked_too():
    annotated = WEB.replace(
        "{name: web, namespace: shop}",
        "{name: web, namespace: shop, annotations: {networking.istio.io/exportTo: 'shp'}}",
    )
    assert found(annotated) == ["metadata.annotations"]


def test_a_service_entry_of_many_hosts_is_reported_once():
    spec = (
        "{hosts: [a.com, b.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS, exportTo: [shp]}"
    )
    assert found(WEB + istio("ServiceEntry", spec)) == ["spec.exportTo[0]"]


def test_without_workloads_namespaces_are_not_checked():
    assert found(WEB.partition("---")[0] + istio("DestinationRule", RULE.replace("%s", "shp"))) == []
