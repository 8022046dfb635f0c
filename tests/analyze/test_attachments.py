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
                "WFT0901 spec.parentRefs[0] Gateway shop/edge https is no listener; there are http (80) "
                "(NoMatchingParent)",
                "WFT0902 spec.rules Service shop/web has no port 81; it has 80 (BackendNotFound)",
                "WFT0905 metadata.name no workload of shop has the label gateway.networking.k8s.io/gateway-name: edge: "
                "nothing serves this",
            ],
        ),
    ],
)
def test_conditions_that_do_not_hold_are_told_in_the_words_of_the_status(text, expected):
    assert told(WEB + text) == expected
