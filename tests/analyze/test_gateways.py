"""Gateways: the cases of WFT0701 to WFT0708 have the plain ones."""

from analyze.meshes import WEB, facts, istio
from weft.analyze.gateways import _names, of_gateways


def gateway(name, hosts, selector="{app: web}", number=80, namespace="shop"):
    server = f"{{port: {{number: {number}, name: tls, protocol: TLS}}, hosts: [{hosts}], tls: {{mode: PASSTHROUGH}}}}"
    return istio("Gateway", f"{{selector: {selector}, servers: [{server}]}}", name, namespace)


def found(text):
    about = [(problem.code, problem.where.object) for problem in of_gateways(facts(text))]
    return [each for each in about if each[0] not in ("WFT0707", "WFT0708")]


def test_workloads_may_be_in_any_namespace():
    assert found(WEB + gateway("a", "a.com", namespace="edge")) == []


def test_other_ports_hosts_or_workloads_are_no_conflict():
    assert found(WEB + gateway("a", "a.com") + gateway("b", "a.com", number=81)) == []
    assert found(WEB + gateway("a", "a.com") + gateway("b", "b.com")) == []
    assert found(WEB + gateway("a", "a.com") + gateway("b", "a.com", selector="{version: v1}")) == []


def test_the_namespace_before_a_host_does_not_tell_them_apart():
    assert found(WEB + gateway("a", "shop/a.com") + gateway("b", "'*/a.com'")) == [("WFT0702", "Gateway shop/b")]


def test_routes_of_plain_http_are_merged_so_that_two_gateways_may_have_one_host():
    both = gateway("a", "a.com") + gateway("b", "a.com")
    assert found(WEB + both.replace("protocol: TLS", "protocol: HTTP").replace(", tls: {mode: PASSTHROUGH}", "")) == []


def test_a_certificates_wildcard_is_one_label():
    assert _names("*.example.com", "a.example.com") and _names("*.example.com", "*.example.com")
    assert not _names("*.example.com", "a.b.example.com") and not _names("a.example.com", "*.example.com")
