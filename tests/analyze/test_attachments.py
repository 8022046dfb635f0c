import pytest

from analyze.meshes import WEB, facts
from weft.analyze.attachments import of_attachments

GATEWAY = """
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec: {gatewayClassName: weft, listeners: [{name: http, port: 80, protocol: HTTP}]}
"""
ROUTE = """
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec:
  parentRefs: [{name: edge%s}]
  rules: [{backendRefs: [{name: web, port: %s}]}]
"""


def told(text):
    return [f"{each.code} {each.where.field} {each.what}" for each in of_attachments(facts(text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ROUTE % ("", 80), ["WFT0901 spec.parentRefs[0] Gateway shop/edge does not exist (NoMatchingParent)"]),
        (
            GATEWAY + ROUTE % (", sectionName: https", 81),
            [
                "WFT0901 spec.parentRefs[0] Gateway shop/edge https matches no listener; the Gateway's listeners are "
                "http (80) (NoMatchingParent)",
                "WFT0902 spec.rules[0] Service shop/web has no port 81; it has 80 (BackendNotFound)",
                "WFT0905 metadata.name no workload of namespace shop has the label "
                "`gateway.networking.k8s.io/gateway-name: edge`: no proxy serves this Gateway",
            ],
        ),
    ],
)
def test_conditions_that_do_not_hold_are_reported_with_the_message_of_the_status(text, expected):
    assert sorted(told(WEB + text)) == expected


CLASS = """
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: istio}
spec: {controllerName: istio.io/gateway-controller}
"""


def test_a_missing_class_is_reported_with_wefts_class_and_its_routes_are_not_accepted():
    foreign = GATEWAY.replace("gatewayClassName: weft", "gatewayClassName: istio")
    gateway, route = reversed(list(of_attachments(facts(WEB + foreign + ROUTE % ("", 80)))))
    assert (gateway.code, gateway.where.field, gateway.hint) == (
        "WFT0906",
        "spec.gatewayClassName",
        "weft's class is `weft`",
    )
    assert (route.code, route.where.object) == ("WFT0901", "HTTPRoute shop/web")
    assert "has the class `istio`" in route.what


def test_gateways_of_another_controller_are_not_reported():
    foreign = GATEWAY.replace("gatewayClassName: weft", "gatewayClassName: istio")
    assert told(WEB + CLASS + foreign + ROUTE % ("", 80)) == []


def test_each_unusable_backend_is_reported_once_at_its_rule_with_a_guess():
    route = (ROUTE % (", port: 80}, {name: edge", 80)).replace("name: web, port: 80", "name: wbe, port: 80")
    (problem,) = [each for each in of_attachments(facts(WEB + GATEWAY + route)) if each.code == "WFT0902"]
    assert problem.where.field == "spec.rules[0]"
    assert problem.hint == "did you mean `web`?"
