"""What is told to somebody whose object of the Gateway API did not do: what to write instead."""

import base64
import json

import pytest

from analyze.meshes import WEB, facts
from authority import Authority
from weft.analyze.attachments import of_attachments

GATEWAY = """
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  gatewayClassName: weft
  listeners:
    - {name: http, port: 80, protocol: HTTP, hostname: "*.example.com"}
    - %s
"""
ROUTE = """
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: %s}
spec:
  parentRefs: [{%s}]
  rules: [{backendRefs: [{%s}]}]
"""


def hints(code, text):
    return [each.hint for each in of_attachments(facts(WEB + text)) if each.code == code]


@pytest.mark.parametrize(
    ("parent", "hint"),
    [
        ("name: egde", "did you mean `edge`?"),
        ("name: nothing-like-it", ""),
        ("name: edge, namespace: other", "namespace shop has an object of this name: write `namespace: shop`"),
        ("name: edge, sectionName: htpp", "did you mean `http`?"),
        ("group: '', kind: Service, name: wbe", "did you mean `web`?"),
        (
            "group: '', kind: Service, name: web, port: 81",
            "set `port` to one of the ports of the Service, or leave `port` out for all its ports",
        ),
    ],
)
def test_a_missing_parent_gets_a_guess(parent, hint):
    route = ROUTE % ("shop", parent, "name: web, port: 80")
    assert hints("WFT0901", GATEWAY % "{name: more, port: 81, protocol: HTTP}" + route) == [hint]


def test_a_listener_is_not_guessed_where_the_class_is_wrong():
    gateway = GATEWAY.replace("Name: weft", "Name: istio") % "{name: more, port: 81, protocol: HTTP}"
    route = ROUTE % ("shop", "name: edge, sectionName: htpp", "name: web, port: 80")
    assert hints("WFT0901", gateway + route) == [""]


def test_the_hint_for_a_parent_that_rejects_a_route_is_what_to_change():
    gateway = GATEWAY % "{name: more, port: 81, protocol: HTTP, hostname: a.example.com}"
    named = ROUTE.replace("rules:", "hostnames: [example.org]\n  rules:")
    (hint,) = hints("WFT0901", gateway + named % ("shop", "name: edge", "name: web, port: 80"))
    assert "without `hostnames` the route has those of the listeners" in hint
    (hint,) = hints("WFT0901", gateway + ROUTE % ("other", "name: edge, namespace: shop", "name: web, port: 80"))
    assert "`namespaces: {from: All}`" in hint


@pytest.mark.parametrize(
    ("backend", "hint"),
    [
        ("name: wbe, port: 80", "did you mean `web`?"),
        (
            "name: nothing-like-it, port: 80",
            "until the Service exists, requests to this backend get 500, and connections are closed",
        ),
        (
            "name: web, port: 81",
            "use a port of the Service; until then, requests to this backend get 500, and connections are closed",
        ),
        ("name: web, kind: Bucket, group: x.example", "name a Service: leave out `group` and `kind`"),
        (
            "name: web, namespace: other, port: 80",
            "a ReferenceGrant in that namespace, with this namespace in `from` and a Service in `to`, allows the reference",
        ),
    ],
)
def test_the_hint_for_an_unusable_backend_is_what_to_change(backend, hint):
    gateway = GATEWAY % "{name: more, port: 81, protocol: HTTP}"
    assert hints("WFT0902", gateway + ROUTE % ("shop", "name: edge", backend)) == [hint]


def test_the_hint_names_the_namespace_that_has_the_backend():
    route = ROUTE % ("other", "name: edge", "name: web, port: 80")
    assert hints("WFT0902", route.replace("name: edge", "name: edge, namespace: shop")) == []
    listener = "{name: more, port: 81, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}"
    route = ROUTE % ("other", "name: edge, namespace: shop", "name: web, port: 80")
    assert hints("WFT0902", GATEWAY % listener + route) == [
        "namespace shop has an object of this name: write `namespace: shop`"
    ]


@pytest.mark.parametrize(
    ("listener", "hint"),
    [
        ("{name: x, port: 53, protocol: UDP}", "write one of HTTP, HTTPS, TLS, TCP"),
        ("{name: x, port: 443, protocol: HTTPSS}", "did you mean `HTTPS`?"),
        ("{name: x, port: 15000, protocol: HTTP}", "use another port"),
        ("{name: x, port: 80, protocol: TCP}", "use one port per protocol"),
        (
            "{name: x, port: 80, protocol: HTTP, hostname: '*.example.com'}",
            "give each listener a `hostname` or a port of its own",
        ),
        (
            "{name: x, port: 81, protocol: HTTP, allowedRoutes: {kinds: [{kind: TCPRoute}]}}",
            "write HTTPRoute or GRPCRoute",
        ),
        (
            "{name: x, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: shown}]}}",
            "create a Secret of that name, with `tls.crt` and `tls.key`",
        ),
        (
            "{name: x, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: shown, namespace: other}]}}",
            "a ReferenceGrant in that namespace, with this namespace in `from` and a Secret or ConfigMap in `to`, allows the reference",
        ),
    ],
)
def test_the_hint_for_an_invalid_listener_is_what_to_change(listener, hint):
    assert hints("WFT0903", GATEWAY % listener) == [hint]


def test_a_secret_with_a_similar_name_is_guessed():
    shown = Authority().issue("a.example.com")
    data = {"tls.crt": shown.certificate, "tls.key": shown.key}
    held = json.dumps({name: base64.b64encode(content).decode() for name, content in data.items()})
    secret = f"""
---
apiVersion: v1
kind: Secret
metadata: {{name: shown, namespace: shop}}
data: {held}
"""
    listener = "{name: x, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: shwon}]}}"
    assert hints("WFT0903", GATEWAY % listener + secret) == ["did you mean `shown`?"]
