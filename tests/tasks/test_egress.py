"""Tasks of https://istio.io/latest/docs/tasks/traffic-management/egress/. The outside world is a pod without a proxy;
ServiceEntries have its address in place of a name that only the Internet's DNS resolves."""

from __future__ import annotations

import sys

import pytest

from authority import Authority
from e2e.objects import text, workload
from eventually import eventually
from tasks.bookinfo import objects

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.root]

HOST = "edition.example.com"
SHOWN = Authority().issue(HOST)
# An HTTPS server on port 8443 that responds with the Host header of a request.
HTTPS = """
import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = f"over TLS: {self.headers['host']}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer(("", 8443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1])
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


def files(control):
    shown, root = control / "outside.pem", control / "root.pem"
    shown.write_bytes(SHOWN.certificate + SHOWN.key)
    root.write_bytes(SHOWN.root)
    for file in (shown, root):
        file.chmod(0o644)
    apart = {"sidecar.istio.io/inject": "false"}
    return {
        "curl.yaml": text(workload("curl", control=control)),
        "outside.yaml": text(
            workload("outside", control=control, serve="http=8080", annotations=apart),
            workload(
                "outside-tls",
                control=control,
                command=[sys.executable, "-c", HTTPS, str(shown)],
                annotations=apart,
                readiness={"tcp": {"port": 8443}},
            ),
            workload("forward", control=control, serve="connect=3128", annotations=apart),
        ),
        "gateway.yaml": GATEWAY,
        "settings.yaml": SETTINGS,
    }


SETTINGS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: "outboundTrafficPolicy: {mode: REGISTRY_ONLY}"}
"""
GATEWAY = """
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: egressgateway, namespace: shop, labels: {istio: egressgateway}}
spec: {gateway: {}, serviceAccount: egressgateway}
---
apiVersion: v1
kind: Service
metadata: {name: egressgateway, namespace: shop}
spec:
  selector: {istio: egressgateway}
  ports: [{name: http2, port: 80, targetPort: 8080}, {name: https, port: 443, targetPort: 8443}]
"""


def entry(mesh, ports, pod="outside", host=HOST):
    return f"""
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: edition}}
spec:
  hosts: [{host}]
  ports: {ports}
  resolution: STATIC
  endpoints: [{{address: {mesh.pod(pod).addresses[0]}}}]
"""


PLAIN = "[{number: 80, name: http, protocol: HTTP, targetPort: 8080}]"
SEALED = "[{number: 80, name: http, protocol: HTTP, targetPort: 8443}]"


async def called(mesh, status, url=f"http://{HOST}/", **arguments):
    found = await eventually(lambda: mesh.get("curl", url, **arguments), lambda answer: answer["status"] == status)
    return found["body"]


async def test_egress_control(mesh):
    """Unknown hosts are blocked; a ServiceEntry allows one, and a VirtualService sets a timeout for it."""
    address = mesh.pod("outside").addresses[0]
    assert (await mesh.get("curl", f"http://{address}:8080/"))["status"] == 0
    await mesh.try_out(*objects(entry(mesh, PLAIN)))
    assert (await called(mesh, 200))["pod"] == "outside-0"
    limited = f"""
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: edition}}
spec:
  hosts: [{HOST}]
  http:
  - timeout: 0.5s
    route: [{{destination: {{host: {HOST}}}}}]
"""
    await mesh.tell("outside", "script", path="/slow", forever={"delay": 2.0})
    await mesh.try_out(*objects(entry(mesh, PLAIN) + "---" + limited))
    await called(mesh, 504, f"http://{HOST}/slow")


async def test_egress_tls_origination(mesh):
    """The application calls HTTP; its proxy calls the outside with TLS, and verifies the certificate."""
    originated = f"""
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: edition}}
spec:
  host: {HOST}
  trafficPolicy:
    portLevelSettings:
    - port: {{number: 80}}
      tls: {{mode: SIMPLE, sni: {HOST}, caCertificates: {mesh.sockets}/root.pem, subjectAltNames: [NAME]}}
"""
    outside = entry(mesh, SEALED, "outside-tls") + "---"
    await mesh.try_out(*objects(outside + originated.replace("NAME", HOST)))
    assert await called(mesh, 200) == f"over TLS: {HOST}"
    await mesh.try_out(*objects(outside + originated.replace("NAME", "other.example.com")))
    await called(mesh, 503)


def through_gateway(onward):
    return f"""
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: egressgateway}}
spec:
  selector: {{istio: egressgateway}}
  servers:
  - port: {{number: 80, name: http, protocol: HTTP}}
    hosts: [{HOST}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: through-gateway}}
spec:
  hosts: [{HOST}]
  gateways: [egressgateway, mesh]
  http:
  - match: [{{gateways: [mesh], port: 80}}]
    route: [{{destination: {{host: egressgateway, port: {{number: 80}}}}}}]
  - match: [{{gateways: [egressgateway], port: 80}}]
    headers: {{response: {{set: {{x-by: gateway}}}}}}
    route: [{{destination: {{host: {HOST}, port: {{number: 80}}}}}}]
---
{onward}
"""


async def by_gateway(mesh):
    answer = await mesh.get("curl", f"http://{HOST}/")
    return answer["body"] if answer["headers"].get("x-by") == "gateway" and answer["status"] == 200 else None


async def test_egress_gateway(mesh):
    """Calls to an outside host leave the mesh only through the egress gateway."""
    await mesh.try_out(*objects(entry(mesh, PLAIN) + "---" + through_gateway("")))
    assert (await eventually(lambda: by_gateway(mesh)))["pod"] == "outside-0"


async def test_egress_gateway_tls_origination(mesh):
    """The gateway, not the application's proxy, calls the outside with TLS."""
    onward = f"""
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: originate}}
spec:
  host: {HOST}
  workloadSelector: {{matchLabels: {{istio: egressgateway}}}}
  trafficPolicy:
    tls: {{mode: SIMPLE, sni: {HOST}, caCertificates: {mesh.sockets}/root.pem, subjectAltNames: [{HOST}]}}
"""
    await mesh.try_out(*objects(entry(mesh, SEALED, "outside-tls") + "---" + through_gateway(onward)))
    assert await eventually(lambda: by_gateway(mesh)) == f"over TLS: {HOST}"


async def test_wildcard_egress_hosts(mesh):
    """All hosts of a domain are allowed, at the address that the application calls."""
    wildcard = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: wildcard}
spec:
  hosts: ["*.example.com"]
  ports: [{number: 8080, name: http, protocol: HTTP}]
"""
    address = mesh.pod("outside").addresses[0]
    await mesh.try_out(*objects(wildcard))
    allowed = await called(mesh, 200, f"http://{address}:8080/", headers={"host": "any.example.com"})
    assert allowed["pod"] == "outside-0"
    other = await mesh.get("curl", f"http://{address}:8080/", headers={"host": "any.example.org"})
    assert other["status"] == 502


async def test_http_proxy(mesh):
    """The application uses an HTTP proxy outside of the mesh, which is a TCP ServiceEntry."""
    proxy = f"""
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: proxy}}
spec:
  hosts: [my-company-proxy.com]
  addresses: [{mesh.pod("forward").addresses[0]}/32]
  ports: [{{number: 3128, name: tcp, protocol: TCP}}]
"""
    goal = f"{mesh.pod('outside').addresses[0]}:8080"
    sent = f"CONNECT {goal} HTTP/1.1\r\nhost: {goal}\r\n\r\n"
    request = "GET /through HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"

    async def tunneled():
        forward = mesh.pod("forward").addresses[0]
        answer = await mesh.tell("curl", "raw", host=forward, port=3128, send=sent, then=request, until="\r\n\r\n")
        return "outside-0" in str(answer)

    assert not await tunneled()
    await mesh.try_out(*objects(proxy))
    await eventually(tunneled)
