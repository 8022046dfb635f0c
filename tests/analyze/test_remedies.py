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
        ("name: edge, namespace: other", "there is one in shop: write `namespace: shop`"),
        ("name: edge, sectionName: htpp", "did you mean `http`?"),
        ("group: '', kind: Service, name: wbe", "did you mean `web`?"),
        (
            "group: '', kind: Service, name: web, port: 81",
            "set one of these as `port`, or leave `port` out for all of them",
        ),
    ],
)
def test_a_parent_that_is_not_there_is_guessed(parent, hint):
    route = ROUTE % ("shop", parent, "name: web, port: 80")
    assert hints("WFT0901", GATEWAY % "{name: more, port: 81, protocol: HTTP}" + route) == [hint]


def test_a_listener_is_not_guessed_where_the_class_is_wrong():
    gateway = GATEWAY.replace("Name: weft", "Name: istio") % "{name: more, port: 81, protocol: HTTP}"
    route = ROUTE % ("shop", "name: edge, sectionName: htpp", "name: web, port: 80")
    assert hints("WFT0901", gateway + route) == [""]


def test_a_parent_that_does_not_take_a_route_is_told_how_it_would():
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
        ("name: nothing-like-it, port: 80", "until it exists, requests sent there get 500, and connections are closed"),
        (
            "name: web, port: 81",
            "use one of its ports; until then, requests sent there get 500, and connections are closed",
        ),
        ("name: web, kind: Bucket, group: x.example", "name a Service, the default without `group` and `kind`"),
        (
            "name: web, namespace: other, port: 80",
            "a ReferenceGrant there, with this namespace in `from` and a Service in `to`, allows it",
        ),
    ],
)
def test_a_backend_that_cannot_be_called_is_told_with_what_to_write(backend, hint):
    gateway = GATEWAY % "{name: more, port: 81, protocol: HTTP}"
    assert hints("WFT0902", gateway + ROUTE % ("shop", "name: edge", backend)) == [hint]


def test_a_backend_that_is_elsewhere_is_found_there():
    route = ROUTE % ("other", "name: edge", "name: web, port: 80")
    assert hints("WFT0902", route.replace("name: edge", "name: edge, namespace: shop")) == []
    listener = "{name: more, port: 81, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}"
    route = ROUTE % ("other", "name: edge, namespace: shop", "name: web, port: 80")
    assert hints("WFT0902", GATEWAY % listener + route) == ["there is one in shop: write `namespace: shop`"]


@pytest.mark.parametrize(
    ("listener", "hint"),
    [
        ("{name: x, port: 53, protocol: UDP}", "write one of HTTP, HTTPS, TLS, TCP"),
        ("{name: x, port: 443, protocol: HTTPSS}", "did you mean `HTTPS`?"),
        ("{name: x, port: 15000, protocol: HTTP}", "use another port"),
        ("{name: x, port: 80, protocol: TCP}", "give each protocol a port"),
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
            "a ReferenceGrant there, with this namespace in `from` and a Secret or ConfigMap in `to`, allows it",
        ),
    ],
)
def test_a_listener_that_cannot_serve_is_told_with_what_to_write(listener, hint):
    assert hints("WFT0903", GATEWAY % listener) == [hint]


def test_a_secret_with_a_name_like_it_is_guessed():
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
