"""Gateways: the cases of WFT0701 to WFT0710 have the plain ones."""

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
    one, two = "{version: v1}", "{version: v2}"
    assert found(WEB + gateway("a", "a.com", selector=one) + gateway("b", "a.com", selector=two)) == []


def test_workloads_are_compared_and_not_the_labels_by_which_they_are_selected():
    both = WEB + gateway("a", "a.com") + gateway("b", "a.com", selector="{version: v1}")
    assert found(both) == [("WFT0702", "Gateway shop/b")]
    reverse = WEB + gateway("a", "a.com", selector="{version: v1}") + gateway("b", "a.com")
    (told,) = [each.what for each in of_gateways(facts(reverse)) if each.code == "WFT0702"]
    assert told == "Gateway shop/a serves a.com at port 80 of shop/web-v1 too and takes precedence"
    other = of_port("b", "HTTP").replace("{app: web}", "{version: v2, app: web}")
    assert found(WEB + of_port("a", "TCP") + other) == [("WFT0703", "Gateway shop/b")]
    some = WEB + of_port("a", "TCP").replace("{app: web}", "{version: v2}") + of_port("b", "HTTP")
    (told,) = [each.what for each in of_gateways(facts(some)) if each.code == "WFT0703"]
    assert told.startswith("port 80 of shop/web-v2 is HTTP here, and TCP in Gateway shop/a")


def test_without_workloads_equal_selectors_count_as_the_same_workloads():
    assert found(gateway("a", "a.com") + gateway("b", "a.com")) == [("WFT0702", "Gateway shop/b")]


def test_hosts_that_differ_only_in_the_namespace_prefix_conflict():
    assert found(WEB + gateway("a", "shop/a.com") + gateway("b", "'*/a.com'")) == [("WFT0702", "Gateway shop/b")]


def test_routes_of_plain_http_are_merged_so_that_two_gateways_may_have_one_host():
    both = gateway("a", "a.com") + gateway("b", "a.com")
    assert found(WEB + both.replace("protocol: TLS", "protocol: HTTP").replace(", tls: {mode: PASSTHROUGH}", "")) == []


def test_a_certificates_wildcard_is_one_label():
    assert _names("*.example.com", "a.example.com") and _names("*.example.com", "*.example.com")
    assert not _names("*.example.com", "a.b.example.com") and not _names("a.example.com", "*.example.com")


def server(protocol, number=80, name="x"):
    return f"{{port: {{number: {number}, name: {name}, protocol: {protocol}}}, hosts: ['*']}}"


def of_port(name, protocol):
    return istio("Gateway", f"{{selector: {{app: web}}, servers: [{server(protocol)}]}}", name)


def test_of_http_and_tcp_on_one_port_the_second_by_name_is_reported():
    for first, second in (("HTTP", "TCP"), ("TCP", "HTTP")):
        both = WEB + of_port("zzz", second) + of_port("aaa", first)
        assert found(both) == [("WFT0703", "Gateway shop/zzz")]
        told = next(each.what for each in of_gateways(facts(both)) if each.code == "WFT0703")
        assert told == (
            f"port 80 is {second} here, and {first} in Gateway shop/aaa, which takes precedence: this server is left "
            "out"
        )


def test_kinds_of_http_share_a_port():
    assert found(WEB + of_port("a", "HTTP") + of_port("b", "HTTP2") + of_port("c", "GRPC")) == []
