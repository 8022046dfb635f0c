from datetime import UTC, datetime

import pytest
from tests.inspect.reasons.told import mesh_of, rule

from weft.inspect.compare.gateway_requests import edge_calls
from weft.inspect.compare.trial import every_call
from weft.inspect.compare.what_if import difference
from weft.inspect.stage import Stage
from weft.model.instance import Instance
from weft.model.names import ObjectKey, labels_of

NOW = datetime(2026, 11, 16, tzinfo=UTC)
EDGE = """
selector: {istio: ingress}
servers:
- {port: {number: 80, name: http, protocol: HTTP}, hosts: [shop.example, "*.a.com"]}
- {port: {number: 443, name: https, protocol: HTTPS}, hosts: [safe.example], tls: {mode: SIMPLE, credentialName: safe}}
- {port: {number: 8443, name: tls, protocol: TLS}, hosts: [bytes.example], tls: {mode: PASSTHROUGH}}
- {port: {number: 9000, name: tcp, protocol: TCP}, hosts: ["*"]}
"""
TO_PAYMENTS = "route: [{destination: {host: payments.shop.svc.cluster.local}}]"


def edge(*routes, hosts="[shop.example, safe.example, '*.a.com']"):
    listed = ", ".join(f"{{{each}}}" for each in routes)
    mesh = mesh_of(
        public=rule(EDGE, "public", "edge", "Gateway"),
        shop=rule(f"hosts: {hosts}\ngateways: [edge/public]\nhttp: [{listed}]", "shop", kind="VirtualService"),
    )
    pod = Instance("edge-0", "edge", ("10.1.0.9",), labels_of({"istio": "ingress"}), gateway=True)
    mesh.apply(ObjectKey("Pod", "edge", "edge-0"), (pod,))
    return Stage(mesh)


def asked(stage):
    return [each.to for each in edge_calls(stage)]


def test_requests_are_generated_for_every_host_of_every_server():
    found = asked(edge(TO_PAYMENTS))
    assert {"http://shop.example:80/", "https://safe.example:443/", "http://any.a.com:80/"} <= {*found}
    assert {"tls://bytes.example:8443", "tcp://any.example:9000"} <= {*found}
    assert {each.caller for each in edge_calls(edge(TO_PAYMENTS))} == {"edge-0.edge"}


def test_requests_are_generated_for_route_paths_but_not_for_patterns():
    uris = ("exact: /one", "prefix: /api/", "regex: '/v[0-9]'", "prefix: '/a?b'")
    found = asked(edge(*(f"match: [{{uri: {{{uri}}}}}], {TO_PAYMENTS}" for uri in uris)))
    shop = [each.removeprefix("http://shop.example:80") for each in found if each.startswith("http://shop.")]
    assert shop == ["/", "/api/", "/one"]


def test_requests_through_gateways_are_generated_but_none_from_gateways():
    calls = [str(each) for each in every_call(edge(TO_PAYMENTS), 100)]
    assert "edge-0.edge GET http://shop.example:80/" in calls
    assert "frontend-0.shop GET http://payments.shop.svc.cluster.local:80/" in calls
    assert not [each for each in calls if each.startswith("edge-0") and "payments" in each]
    few = [str(each) for each in every_call(edge(TO_PAYMENTS), 4)]
    assert [each.startswith("edge-0") for each in few] == [True, True, False, False]


@pytest.mark.parametrize("path", ["", "match: [{uri: {prefix: /api}}], "])
def test_a_direct_response_at_a_gateway_changes_external_requests(path):
    gone = f"{path}directResponse: {{status: 410}}"
    found = difference(edge(f"{path}{TO_PAYMENTS}"), edge(gone), [], NOW)
    turned = {each.request: each for each in found.requests}
    each = turned[f"edge-0.edge GET http://shop.example:80/{'api' if path else ''}"]
    assert each.before[0].startswith("delivered") and each.after[0].startswith("answered 410")
    assert each.because.startswith("VirtualService shop/shop")
