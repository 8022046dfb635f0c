"""Hosts and addresses with two owners. The cases of WFT0310, WFT0312, WFT0313, WFT0315 and WFT0316 have the plain ones."""

from analyze.meshes import WEB, facts, istio
from weft.analyze.claims import of_claims


def found(text):
    return [(problem.code, problem.where.object) for problem in of_claims(facts(text))]


def entry(name, host, namespace="shop", more="resolution: DNS"):
    return istio(
        "ServiceEntry",
        f"{{hosts: [{host}], ports: [{{number: 80, name: http, protocol: HTTP}}], {more}}}",
        name=name,
        namespace=namespace,
    )


def test_a_service_has_precedence_over_every_service_entry_for_its_host():
    assert found(WEB + entry("web", "web.shop.svc.cluster.local", "bank")) == [("WFT0312", "ServiceEntry bank/web")]


def test_service_entries_of_two_namespaces_may_have_the_same_host():
    assert found(WEB + entry("a", "a.com") + entry("a", "a.com", "bank")) == []


def test_http_and_tls_are_distinguished_by_name_so_they_may_share_an_address():
    shared = "addresses: [192.0.2.9], resolution: DNS"
    assert found(WEB + entry("a", "a.com", more=shared) + entry("b", "b.com", more=shared)) == []


def test_external_names_in_a_loop_are_reported_and_those_that_lead_into_it_are_not():
    def alias(name, goal):
        return (
            f"---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\n"
            f"spec: {{type: ExternalName, externalName: {goal}}}\n"
        )

    there = "{}.shop.svc.cluster.local".format
    assert found(WEB + alias("a", there("b")) + alias("b", there("web"))) == []
    assert found(WEB + alias("a", there("a"))) == [("WFT0310", "Service shop/a")]
    circle = alias("a", there("b")) + alias("b", there("c")) + alias("c", there("b"))
    assert [name for _, name in found(WEB + circle)] == ["Service shop/b", "Service shop/c"]
