"""Tasks of https://istio.io/latest/docs/tasks/traffic-management/ingress/, and those of other sections at an ingress
gateway."""

from __future__ import annotations

import base64
import contextlib
import json

import pytest
from tools.ports import free_port

from authority import Authority
from e2e.objects import http_service, text, workload
from eventually import eventually
from gateway_rig import ask, trusting
from tasks.bookinfo import objects
from translate import tokens

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.root]

HOST = "httpbin.example.com"
HTTP, HTTPS = free_port(), free_port()
AUTHORITY, CLIENTS = Authority(), Authority()
SERVER, CLIENT = AUTHORITY.issue(HOST), CLIENTS.issue("client.example.com")


def files(control):
    gateway = {
        "apiVersion": "weft.dev/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "ingressgateway", "namespace": "shop", "labels": {"istio": "ingressgateway"}},
        "spec": {"gateway": {"publish": [{"port": 80, "hostPort": HTTP}, {"port": 443, "hostPort": HTTPS}]}},
    }
    return {
        "httpbin.yaml": text(
            workload("httpbin", control=control, serve="http=8080"),
            http_service("httpbin"),
            # An application that terminates TLS itself, for which the gateway passes it through.
            workload("my-nginx", control=control, serve="namer=8443"),
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "my-nginx", "namespace": "shop"},
                "spec": {"selector": {"app": "my-nginx"}, "ports": [{"name": "tls", "port": 443, "targetPort": 8443}]},
            },
        ),
        "gateway.yaml": text(gateway),
    }


ROUTE = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: httpbin}
spec:
  hosts: [HOST]
  gateways: [httpbin-gateway]
  http:
  - match: [{uri: {prefix: /status}}, {uri: {prefix: /delay}}]
    route: [{destination: {host: httpbin, port: {number: 80}}}]
""".replace("HOST", HOST)


def gateway(server, hosts=HOST):
    return f"""
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: httpbin-gateway}}
spec:
  selector: {{istio: ingressgateway}}
  servers:
  - {server}
    hosts: [{hosts}]
"""


def secret(**held):
    data = {name.replace("_", "."): base64.b64encode(content).decode() for name, content in held.items()}
    metadata = {"name": "httpbin-credential", "namespace": "shop"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}


async def answered(expected, path="/status/200", port=HTTP, **arguments):
    async def found():
        with contextlib.suppress(TimeoutError, OSError):
            answer = await ask(port, arguments.pop("host", HOST), path, **arguments)
            return answer.status if answer is not None else 0
        return 0

    return await eventually(found, lambda status: status == expected)


async def test_ingress_control(mesh):
    """A Gateway and a VirtualService expose some paths of a service under a host."""
    plain = gateway("port: {number: 80, name: http, protocol: HTTP}")
    await mesh.try_out(*objects(plain + "---" + ROUTE))
    await answered(200)
    assert (await ask(HTTP, HOST, "/headers")).status == 404
    assert (await ask(HTTP, "other.example.com", "/status/200")).status == 404


@pytest.mark.parametrize("mode", ("SIMPLE", "MUTUAL"))
async def test_secure_ingress(mesh, mode):
    """The gateway terminates TLS with a Secret; with MUTUAL it also requires a certificate of the client."""
    server = (
        "port: {number: 443, name: https, protocol: HTTPS}\n"
        f"    tls: {{mode: {mode}, credentialName: httpbin-credential}}"
    )
    held = secret(tls_crt=SERVER.certificate, tls_key=SERVER.key, ca_crt=CLIENT.root)
    await mesh.try_out(*objects(gateway(server) + "---" + ROUTE), held)
    await answered(200, port=HTTPS, tls=trusting(SERVER, shows=CLIENT))
    without = await ask(HTTPS, HOST, "/status/200", tls=trusting(SERVER))
    assert (without is None) is (mode == "MUTUAL")
    stranger = Authority().issue("client.example.com")
    foreign = await ask(HTTPS, HOST, "/status/200", tls=trusting(SERVER, shows=stranger))
    assert (foreign is None) is (mode == "MUTUAL")


async def test_ingress_sni_passthrough(mesh):
    """TLS is passed to the application, chosen by the server name."""
    name = "nginx.example.com"
    server = "port: {number: 443, name: https, protocol: HTTPS}\n    tls: {mode: PASSTHROUGH}"
    route = f"""
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: nginx}}
spec:
  hosts: [{name}]
  gateways: [httpbin-gateway]
  tls:
  - match: [{{port: 443, sniHosts: [{name}]}}]
    route: [{{destination: {{host: my-nginx, port: {{number: 443}}}}}}]
"""
    await mesh.try_out(*objects(gateway(server, name) + "---" + route))
    before = await mesh.stat("my-nginx", r"^cluster\.inbound.8443.*upstream_cx_total$")

    async def reached():
        with contextlib.suppress(OSError, TimeoutError):
            await ask(HTTPS, name, tls=trusting(SERVER))  # the application here only names itself: no handshake
        return await mesh.stat("my-nginx", r"^cluster\.inbound.8443.*upstream_cx_total$") > before

    await eventually(reached)


async def test_authz_ingress(mesh):
    """Clients are allowed or denied by address at the gateway."""
    plain = gateway("port: {number: 80, name: http, protocol: HTTP}")
    policy = """
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: ingress-policy}
spec:
  selector: {matchLabels: {istio: ingressgateway}}
  action: ACTION
  rules: [{from: [{source: {ipBlocks: BLOCKS}}]}]
"""
    everyone, nobody = '["0.0.0.0/0", "::/0"]', '["192.0.2.0/24"]'
    for action, blocks, expected in (
        ("ALLOW", everyone, 200),
        ("ALLOW", nobody, 403),
        ("DENY", nobody, 200),
        ("DENY", everyone, 403),
    ):
        judged = policy.replace("ACTION", action).replace("BLOCKS", blocks)
        await mesh.try_out(*objects(plain + "---" + ROUTE + "---" + judged))
        await answered(expected)


async def test_jwt_route(mesh):
    """Requests are routed by a claim of their verified token."""
    plain = gateway("port: {number: 80, name: http, protocol: HTTP}")
    by_claim = ROUTE.replace(
        "  - match: [{uri: {prefix: /status}}, {uri: {prefix: /delay}}]",
        '  - match: [{uri: {prefix: /status}, headers: {"@request.auth.claims.groups": {exact: group1}}}]',
    )
    keys = json.dumps(tokens.key_set(rsa=tokens.RSA_KEY))
    authentication = f"""
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {{name: ingress-jwt}}
spec:
  selector: {{matchLabels: {{istio: ingressgateway}}}}
  jwtRules: [{{issuer: "{tokens.ISSUER}", jwks: {keys}}}]
"""
    await mesh.try_out(*objects(plain + "---" + by_claim + "---" + authentication))
    right = [("authorization", f"Bearer {tokens.token(groups=['group1', 'group2'])}")]
    await answered(200, headers=right)
    assert (await ask(HTTP, HOST, "/status/200")).status == 404
    wrong = [("authorization", f"Bearer {tokens.token(groups=['group2'])}")]
    assert (await ask(HTTP, HOST, "/status/200", headers=wrong)).status == 404
    forged = [("authorization", f"Bearer {tokens.token(tokens.OTHER_KEY)}")]
    assert (await ask(HTTP, HOST, "/status/200", headers=forged)).status == 401
