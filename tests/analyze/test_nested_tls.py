"""TLS inside TLS, and all that only looks like it. The cases of the check itself are in `cases/WFT0224*.yaml`."""

import pytest

from analyze.meshes import facts, istio
from weft.analyze.nested_tls import of_nested_tls

SIMPLE = "tls: {mode: SIMPLE, sni: pay.example.com}"
ASKS = istio("DestinationRule", f"{{host: pay.example.com, trafficPolicy: {{{SIMPLE}}}}}", name="asks")
TO_443 = "route: [{destination: {host: pay.example.com, port: {number: 443}}}]"


def entry(*ports):
    listed = ", ".join(f"{{number: {number}, name: {name}, protocol: {protocol}}}" for number, name, protocol in ports)
    return istio("ServiceEntry", f"{{hosts: [pay.example.com], ports: [{listed}], resolution: DNS}}", name="pay")


def routes(kind, route, match="", gateways="mesh"):
    spec = f"{{hosts: [pay.example.com], gateways: [{gateways}], {kind}: [{{{match}{route}}}]}}"
    return istio("VirtualService", spec, name="routes")


BOTH = entry((443, "tls", "TLS"), (80, "http", "HTTP"))
BY_NAME = "match: [{port: 443, sniHosts: [pay.example.com]}], "


def told(text):
    return [each.what for each in of_nested_tls(facts(text))]


@pytest.mark.parametrize("protocol", ["TLS", "HTTPS"])
def test_tls_origination_to_a_port_declared_as_tls_is_reported(protocol):
    (what,) = told(entry((443, "secure", protocol)) + ASKS)
    assert what.startswith(
        f"port 443 of pay.example.com is declared as {protocol.lower()}, so callers send TLS themselves, and this"
    )


def test_the_route_that_passes_tls_through_is_named():
    (what,) = told(entry((443, "tcp", "TCP")) + ASKS + routes("tls", TO_443, BY_NAME, gateways="edge"))
    assert what.startswith("TLS for port 443 of pay.example.com is passed through by the tls route of ")
    assert "VirtualService shop/routes, and this rule originates TLS once more" in what


@pytest.mark.parametrize("protocol", ["HTTP", "TCP"])
def test_callers_without_tls_may_have_it_added(protocol):
    assert told(entry((443, "plain", protocol)) + ASKS) == []


@pytest.mark.parametrize("kind", ["http", "tcp"])
def test_tls_may_be_added_to_what_other_routes_send_there(kind):
    """As where an egress gateway speaks TLS for those who do not."""
    assert told(BOTH + ASKS + routes(kind, TO_443, gateways="edge")) == []
    assert len(told(BOTH + ASKS + routes(kind, TO_443.replace("443", "80"), gateways="edge"))) == 1


def test_tls_may_be_added_to_what_is_mirrored_there():
    copied = f"{TO_443.replace('443', '80')}, mirror: {{host: pay.example.com, port: {{number: 443}}}}"
    assert told(BOTH + ASKS + routes("http", copied)) == []


def test_tls_may_be_added_to_what_routes_send_to_a_host_that_a_wildcard_stands_for():
    wild = (entry((443, "tls", "TLS")) + ASKS).replace("DNS", "NONE").replace("pay.example.com", "'*.example.com'", 2)
    assert len(told(wild)) == 1
    assert told(wild + routes("http", TO_443, gateways="edge")) == []
    assert len(told(wild + routes("http", TO_443.replace("pay.example.com", "pay.example.org")))) == 1


@pytest.mark.parametrize(
    "policy",
    [
        f"portLevelSettings: [{{port: {{number: 80}}, {SIMPLE}}}]",
        "tls: {mode: DISABLE}",
        "tls: {mode: ISTIO_MUTUAL}",
        f"{SIMPLE}, tunnel: {{targetHost: pay.example.com, targetPort: 443}}",
    ],
)
def test_rules_that_originate_no_tls_there_have_no_findings(policy):
    rule = istio("DestinationRule", f"{{host: pay.example.com, trafficPolicy: {{{policy}}}}}")
    assert told(BOTH + rule + routes("tls", TO_443, BY_NAME)) == []


def test_a_rule_that_the_routes_do_not_use_is_not_reported():
    hidden = ASKS.replace("{host:", '{exportTo: ["."], host:').replace("namespace: shop", "namespace: bank")
    plain = entry((443, "tcp", "TCP"))
    assert told(plain + hidden + routes("tls", TO_443, BY_NAME)) == []
    assert len(told(plain + hidden.replace("bank", "shop") + routes("tls", TO_443, BY_NAME))) == 1


def test_nothing_is_reported_where_another_rule_has_no_tls():
    other = istio("DestinationRule", "{host: '*.example.com', trafficPolicy: {tls: {mode: DISABLE}}}", namespace="bank")
    assert told(entry((443, "tls", "TLS")) + ASKS + other) == []


def test_only_the_subset_to_which_tls_is_passed_through_is_reported():
    spec = f"{{host: pay.example.com, subsets: [{{name: far, trafficPolicy: {{{SIMPLE}}}}}, {{name: near}}]}}"
    text = BOTH + istio("DestinationRule", spec)
    assert told(text) == []
    assert told(text + routes("tls", TO_443.replace("port:", "subset: near, port:"), BY_NAME)) == []
    assert len(told(text + routes("tls", TO_443.replace("port:", "subset: far, port:"), BY_NAME))) == 1


def test_a_destination_without_a_port_uses_the_only_port():
    somewhere = "route: [{destination: {host: pay.example.com}}]"
    only = entry((443, "tcp", "TCP")) + ASKS
    assert len(told(only + routes("tls", somewhere, BY_NAME))) == 1
    two = entry((443, "tcp", "TCP"), (444, "tcp-other", "TCP")) + ASKS
    assert told(two + routes("tls", somewhere, BY_NAME)) == []
