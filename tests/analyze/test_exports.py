"""`exportTo`: the case of WFT0406 has the plain one."""

from analyze.meshes import WEB, facts, istio
from weft.analyze.exports import of_exports

RULE = "{host: web, exportTo: [%s]}"


def found(text):
    return [problem.where.field for problem in of_exports(facts(text))]


def test_signs_and_namespaces_in_which_something_runs_are_well():
    bank = WEB.replace("namespace: shop", "namespace: bank")
    assert found(f"{WEB}---{bank}" + istio("DestinationRule", RULE.replace("%s", "., bank"))) == []
    assert found(WEB + istio("DestinationRule", RULE.replace("%s", "'*'"))) == []


def test_a_services_annotation_is_looked_at_too():
    annotated = WEB.replace(
        "{name: web, namespace: shop}",
        "{name: web, namespace: shop, annotations: {networking.istio.io/exportTo: 'shp'}}",
    )
    assert found(annotated) == ["metadata.annotations"]


def test_an_entry_of_many_hosts_is_one_object_and_told_once():
    spec = (
        "{hosts: [a.com, b.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS, exportTo: [shp]}"
    )
    assert found(WEB + istio("ServiceEntry", spec)) == ["spec.exportTo[0]"]


def test_where_nothing_runs_namespaces_are_for_others_to_know():
    assert found(WEB.partition("---")[0] + istio("DestinationRule", RULE.replace("%s", "shp"))) == []
