"""Gateways: the cases of WFT0701 to WFT0703 have the plain ones."""

from analyze.meshes import WEB, facts, istio
from weft.analyze.gateways import of_gateways


def gateway(name, hosts, selector="{app: web}", number=80, namespace="shop"):
    server = f"{{port: {{number: {number}, name: http, protocol: HTTP}}, hosts: [{hosts}]}}"
    return istio("Gateway", f"{{selector: {selector}, servers: [{server}]}}", name, namespace)


def found(text):
    return [(problem.code, problem.where.object) for problem in of_gateways(facts(text))]


def test_workloads_may_be_in_any_namespace():
    assert found(WEB + gateway("a", "a.com", namespace="edge")) == []


def test_other_ports_hosts_or_workloads_are_no_conflict():
    assert found(WEB + gateway("a", "a.com") + gateway("b", "a.com", number=81)) == []
    assert found(WEB + gateway("a", "a.com") + gateway("b", "b.com")) == []
    assert found(WEB + gateway("a", "a.com") + gateway("b", "a.com", selector="{version: v1}")) == []


def test_the_namespace_before_a_host_does_not_tell_them_apart():
    assert found(WEB + gateway("a", "shop/a.com") + gateway("b", "'*/a.com'")) == [("WFT0702", "Gateway shop/b")]
