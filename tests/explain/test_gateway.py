"""From outside through a gateway: what is told is what a real one does."""

import pytest
from tools.ports import free_port

from authority import Authority
from gateway_rig import application, ask, entry, gateway, trusting
from translate.test_gateway_tls import pair
from weft.explain.decision import Kind
from weft.explain.explain import explain
from weft.explain.url import request_of
from weft.model.instance import Instance
from weft.model.names import ObjectKey, labels_of

MESH = """
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: public, namespace: edge}
spec:
  selector: {istio: ingress}
  servers:
    - {port: {number: PLAIN, name: http, protocol: HTTP}, hosts: [shop.example.com]}
    - {port: {number: PLAIN, name: safe, protocol: HTTP}, hosts: [safe.example.com], tls: {httpsRedirect: true}}
    - port: {number: SECURE, name: https, protocol: HTTPS}
      hosts: ["*.example.com"]
      tls: {mode: SIMPLE, credentialName: shop}
    - port: {number: SECURE, name: near, protocol: HTTPS}
      hosts: [near.example.com]
      tls: {mode: MUTUAL, credentialName: shop}
    - port: {number: SECURE, name: lost, protocol: HTTPS}
      hosts: [lost.example.com]
      tls: {mode: SIMPLE, credentialName: lost}
    - {port: {number: BYTES, name: tcp, protocol: TCP}, hosts: ["*"]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: shop, namespace: shop}
spec:
  hosts: ["*.example.com"]
  gateways: [edge/public]
  http:
    - match: [{uri: {prefix: /moved}}]
      redirect: {uri: /here}
    - match: [{uri: {prefix: /void}}]
      route: [{destination: {host: nobody}}]
    - route: [{destination: {host: web}}]
  tcp: [{route: [{destination: {host: bytes}}]}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-admin, namespace: edge}
spec:
  action: DENY
  rules: [{to: [{operation: {paths: [/admin]}}]}]
"""
ASKED = (
    "http://shop.example.com:PLAIN/",
    "http://shop.example.com:PLAIN/moved",
    "http://shop.example.com:PLAIN/void",
    "http://shop.example.com:PLAIN/admin",
    "http://safe.example.com:PLAIN/x",
    "http://other.example.com:PLAIN/",
    "https://shop.example.com:SECURE/",
    "https://shop.example.com:SECURE/admin",
    "https://lost.example.com:SECURE/",
    "https://example.org:SECURE/",
    "http://shop.example.com:SECURE/",
    "http://shop.example.com:BYTES/",
    "http://shop.example.com:UNSERVED/",
)


async def test_what_is_told_is_what_a_gateway_does():
    plain, secure, bytes_, unserved = (free_port() for _ in range(4))
    shown = Authority().issue("*.example.com")

    def written(text):
        for word, port in (("PLAIN", plain), ("SECURE", secure), ("BYTES", bytes_), ("UNSERVED", unserved)):
            text = text.replace(word, str(port))
        return text

    async with application("web") as web:
        text = MESH + pair("shop", shown, ca_crt=shown.root) + entry("web", web) + entry("bytes", web, "TCP")
        async with gateway(written(text), listening=(plain, secure, bytes_)) as made:
            pod = Instance("ingress-0", "edge", ("192.0.2.50",), labels_of({"istio": "ingress"}), gateway=True)
            made.plane.put(ObjectKey("Instance", "edge", "ingress-0"), (pod,))
            stage = made.plane.stage()
            caller = stage.find("ingress-0")
            for url in map(written, ASKED):
                request = request_of(url, caller=caller)
                verdict = explain(request, stage).verdict
                tls = trusting(shown) if url.startswith("https") else None
                if tls is not None:
                    tls.check_hostname = False
                called = request.host if tls else f"{request.host}:{request.port}"
                found = await ask(request.port, called, request.path, tls=tls)
                if found is None:
                    assert verdict.kind is Kind.CLOSED, (url, verdict)
                elif verdict.kind is Kind.PASSED_ON:
                    assert found.status == 200 and found.seen["app"] == "web", (url, found)
                else:
                    assert (verdict.status, verdict.location) == (found.status, found.headers.get("location", "")), url


def told(url, headers=()):
    from golden.render import load
    from weft.control.stage import Stage

    text = (
        MESH
        + "---\napiVersion: weft.dev/v1alpha1\nkind: Workload\nmetadata: {name: edge, namespace: edge, labels: {istio: ingress}}\nspec: {gateway: {}}\n"
    )
    for word, port in (("PLAIN", 80), ("SECURE", 443), ("BYTES", 5432)):
        text = text.replace(word, str(port))
    shown = Authority().issue("near.example.com")
    mesh, _ = load(text + pair("shop", shown, ca_crt=shown.root))
    stage = Stage(mesh)
    found = explain(request_of(url, caller=stage.find("edge"), headers=headers), stage)
    return [step.what for step in found.outcomes[0].steps], found.verdict


def test_each_step_at_the_edge_is_told():
    steps, _ = told("https://near.example.com/")
    assert steps[0] == (
        "from outside to port 443 for near.example.com: the listener 0.0.0.0_443, the server https.443.near.public.edge "
        "that has near.example.com"
    )
    assert steps[1] == (
        "it ends the TLS with kubernetes://shop, and turns away who shows no certificate that it trusts"
    )
    steps, _ = told("http://shop.example.com:8080/")
    assert steps == ["from outside to port 8080: edge-0.edge serves no such port (it serves 80, 443, 5432)"]


@pytest.mark.parametrize(("name", "status"), [("x_user", 400), ("x-user", 0)])
def test_headers_that_an_application_may_mistake_are_refused(name, status):
    _, verdict = told("http://shop.example.com/moved" if status else "http://safe.example.com/", headers=((name, "a"),))
    assert verdict.status == (status or 301)
