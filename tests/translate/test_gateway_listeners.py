"""TCP and passed-through TLS connections through a real gateway, routed by SNI, address and port."""

import asyncio
import contextlib
import ssl

import pytest
from tools.ports import free_port

from authority import Authority
from eventually import eventually
from fields import proves
from gateway_rig import all_http, application, ask, entry, gateway, pair, secret, trusting
from golden.render import compile_group, load
from weft.model.group import Group, ProxyKind
from weft.model.instance import Instance
from weft.model.names import ObjectKey, labels_of


def tls_server(credentials, tmp_path, name):
    (tmp_path / f"{name}.crt").write_bytes(credentials.certificate)
    (tmp_path / f"{name}.key").write_bytes(credentials.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
    return context


PASSING = """
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: public, namespace: edge}}
spec:
  selector: {{istio: ingress}}
  servers:
    - port: {{number: {tls}, name: tls, protocol: TLS}}
      hosts: ["*.example.com"]
      tls: {{mode: PASSTHROUGH}}
    - port: {{number: {tcp}, name: tcp, protocol: TCP}}
      hosts: ["*"]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: names, namespace: shop}}
spec:
  hosts: ["*.example.com"]
  gateways: [edge/public]
  tls:
    - match: [{{sniHosts: [a.example.com], port: {tls}}}]
      route: [{{destination: {{host: first}}}}]
    - match: [{{sniHosts: ["*.b.example.com"], gateways: [edge/public]}}]
      route: [{{destination: {{host: second}}}}]
    - match: [{{sniHosts: [c.example.com], gateways: [mesh]}}]
      route: [{{destination: {{host: second}}}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: bytes, namespace: shop}}
spec:
  hosts: ["*"]
  gateways: [edge/public]
  tcp:
    - match: [{{port: {tcp}, gateways: [mesh]}}]
      route: [{{destination: {{host: second}}}}]
    - match: [{{port: {tcp}, gateways: [edge/public]}}]
      route:
        - {{destination: {{host: plain}}, weight: 100}}
        - {{destination: {{host: first}}, weight: 0}}
"""


@proves("VirtualService", "spec.tls[].match[].gateways", "spec.tcp[].match[].gateways")
async def test_sni_selects_the_destination_of_tls_passthrough_at_a_gateway(tmp_path):
    authority = Authority()
    one, two = authority.issue("a.example.com"), authority.issue("x.b.example.com")
    tls, tcp = free_port(), free_port()
    async with (
        application("first", tls_server(one, tmp_path, "one")) as first,
        application("second", tls_server(two, tmp_path, "two")) as second,
        application("plain") as plain,
    ):
        text = PASSING.format(tls=tls, tcp=tcp)
        text += entry("first", first, "TLS") + entry("second", second, "TLS") + entry("plain", plain, "TCP")
        async with gateway(text, listening=(tls, tcp)) as made:
            assert (await ask(tls, "a.example.com", tls=trusting(one))).seen["app"] == "first"
            assert (await ask(tls, "x.b.example.com", tls=trusting(two))).seen["app"] == "second"
            anybody = trusting(two)
            anybody.check_hostname = False
            assert await ask(tls, "c.example.com", tls=anybody) is None  # its route is the mesh's
            assert await ask(tls, "other.example.org", tls=trusting(one)) is None
            assert (await ask(tcp, "whatever")).seen["app"] == "plain"
            made.apply(
                """
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: none, namespace: edge}
spec: {}
"""
            )
            await made.until_has("envoy.filters.network.rbac")

            async def is_shut():
                answers = [await ask(tcp, "whatever"), await ask(tls, "a.example.com", tls=trusting(one))]
                return answers == [None, None]

            await eventually(is_shut)


ADDRESSED = """
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: public, namespace: edge}}
spec:
  selector: {{istio: ingress}}
  servers:
    - port: {{number: {tcp}, name: tcp, protocol: TCP}}
      hosts: ["*"]
    - port: {{number: {tls}, name: tls, protocol: TLS}}
      hosts: [a.example.com]
      tls: {{mode: PASSTHROUGH}}
    - port: {{number: {tls}, name: ended, protocol: TLS}}
      hosts: [b.example.com]
      tls: {{mode: SIMPLE, credentialName: b}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: bytes, namespace: shop}}
spec:
  hosts: ["*"]
  gateways: [edge/public]
  tcp:
    - match: [{{port: {tcp}, destinationSubnets: [127.0.0.2/32, "fd00::/8"]}}]
      route: [{{destination: {{host: plain}}}}]
    - match: [{{port: {tcp}, destinationSubnets: [127.0.0.2/31]}}]
      route: [{{destination: {{host: other}}}}]
    - match: [{{port: {tls}, destinationSubnets: [127.0.0.4/32]}}]
      route: [{{destination: {{host: other}}}}]
  tls:
    - match: [{{sniHosts: [a.example.com], destinationSubnets: [127.0.0.2/32]}}]
      route: [{{destination: {{host: first}}}}]
    - match: [{{sniHosts: [a.example.com], destinationSubnets: [127.0.0.0/30]}}]
      route: [{{destination: {{host: second}}}}]
"""


@proves("VirtualService", "spec.tls[].match[].destinationSubnets", "spec.tcp[].match[].destinationSubnets")
async def test_the_destination_address_selects_the_route_of_a_connection(tmp_path):
    """Connections to the same address with another SNI go to the other routes."""
    authority = Authority()
    a, b = authority.issue("a.example.com"), authority.issue("b.example.com")
    tls, tcp = free_port(), free_port()
    async with (
        application("first", tls_server(a, tmp_path, "one")) as first,
        application("second", tls_server(a, tmp_path, "two")) as second,
        application("plain") as plain,
        application("other") as other,
    ):
        text = ADDRESSED.format(tls=tls, tcp=tcp) + pair("b", b)
        text += entry("first", first, "TLS") + entry("second", second, "TLS")
        text += entry("plain", plain, "TCP") + entry("other", other, "TCP")

        async def answering(port, name, trusted=None):
            addresses = [f"127.0.0.{last}" for last in (1, 2, 3, 4)]
            found = [await ask(port, name, tls=trusted and trusting(trusted), at=address) for address in addresses]
            return [answer and answer.seen["app"] for answer in found]

        async with gateway(text, listening=(tls, tcp)):
            assert await answering(tcp, "whatever") == [None, "plain", "other", None]
            assert await answering(tls, "a.example.com", a) == ["second", "first", "second", None]
            assert await answering(tls, "b.example.com", b) == [None, None, None, "other"]


@contextlib.asynccontextmanager
async def echo():
    """Answers with the body of the request, which it has read to its end; yields its port."""

    async def answer(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.partition("content-length: ")[2].split("\r\n")[0])
        body = await reader.readexactly(size)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % size + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 25) as server:
        yield server.sockets[0].getsockname()[1]


async def test_a_body_of_any_size_passes_with_small_buffers():
    port = free_port()
    sent = b"0123456789abcdef" * (1 << 20)
    async with echo() as app, gateway(all_http(port, "{host: app}") + entry("app", app), listening=(port,)) as made:
        limit = '"per_connection_buffer_limit_bytes": 32768'
        assert (await made.dump()).count(limit) == 2  # towards the caller, towards the application
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 25)
            writer.write(b"POST / HTTP/1.1\r\nHost: app\r\nContent-Length: %d\r\n\r\n" % len(sent) + sent)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            assert await reader.readexactly(len(sent)) == sent
            writer.close()


async def test_tls_may_be_terminated_for_tcp_too():
    shown = Authority().issue("db.example.com")
    port = free_port()
    async with application("db") as db:
        text = f"""
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: public, namespace: edge}}
spec:
  selector: {{istio: ingress}}
  servers:
    - port: {{number: {port}, name: tls, protocol: TLS}}
      hosts: [db.example.com]
      tls: {{mode: SIMPLE, credentialName: db}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: db, namespace: shop}}
spec:
  hosts: [db.example.com]
  gateways: [edge/public]
  tcp: [{{route: [{{destination: {{host: db}}}}]}}]
"""
        async with gateway(text + pair("db", shown) + entry("db", db, "TCP"), listening=(port,)):
            assert (await ask(port, "db.example.com", tls=trusting(shown))).seen["app"] == "db"
            assert await ask(port, "x.example.com", tls=trusting(shown)) is None


@pytest.mark.parametrize(("mode", "first"), [("SIMPLE", "wrong"), ("SIMPLE", "missing"), ("MUTUAL", "missing")])
@proves("DestinationRule", "spec.trafficPolicy.tls.credentialName")
async def test_a_gateway_originates_tls_with_a_secret(tmp_path, mode, first):
    """Egress: plain HTTP comes in, TLS goes out."""
    authority, partners = Authority(), Authority()
    server, client = authority.issue("api.example.com"), partners.issue("client.example.com")
    context = tls_server(server, tmp_path, "server")
    if mode == "MUTUAL":
        (tmp_path / "client.ca").write_bytes(client.root)
        context.load_verify_locations(tmp_path / "client.ca")
        context.verify_mode = ssl.CERT_REQUIRED
    port = free_port()
    async with application("api", context) as api:
        text = f"""
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: egress, namespace: edge}}
spec:
  selector: {{istio: ingress}}
  servers: [{{port: {{number: {port}, name: http, protocol: HTTP}}, hosts: [api.example.com]}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: api, namespace: shop}}
spec:
  hosts: [api.example.com]
  gateways: [mesh, edge/egress]
  http:
    - match: [{{gateways: [mesh]}}]
      route: [{{destination: {{host: egress.edge.svc.cluster.local, port: {{number: 80}}}}}}]
    - match: [{{gateways: [edge/egress]}}]
      route: [{{destination: {{host: api.example.com}}}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: api, namespace: edge}}
spec:
  host: api.example.com
  trafficPolicy: {{tls: {{mode: {mode}, credentialName: partner, sni: api.example.com}}}}
"""
        held = secret("partner", "Opaque", cert=client.certificate, key=client.key, cacert=server.root)
        text += entry("api", api, host="api.example.com")
        # A server with a certificate of another CA is rejected, and without the Secret no server is called in
        # plaintext.
        wrong = secret("partner", "Opaque", cert=client.certificate, key=client.key, cacert=Authority().root)
        async with gateway(text + (wrong if first == "wrong" else ""), listening=(port,)) as made:
            assert (await ask(port, "api.example.com")).status == 503
            made.apply(held.removeprefix("---\n"))

            async def answers():
                found = await ask(port, "api.example.com")
                return found.status == 200 and found.seen["app"] == "api"

            await eventually(answers)


@pytest.mark.parametrize("level", ["trafficPolicy: SILENT", "subsets: [{name: v1, trafficPolicy: SILENT}]"])
async def test_a_rule_without_tls_keeps_the_tls_of_a_backend_tls_policy(tmp_path, level):
    safe, port = Authority().issue("safe.example.com"), free_port()
    roots = "".join(f"    {line}\n" for line in safe.root.decode().splitlines())
    silent = "{portLevelSettings: [{port: {number: 80}, connectionPool: {tcp: {maxConnections: 9}}}]}"
    async with application("safe", tls_server(safe, tmp_path, "safe")) as app:
        to = "{host: safe, subset: v1}" if "subsets" in level else "{host: safe}"
        text = f"""{all_http(port, to)}---
apiVersion: v1
kind: Service
metadata: {{name: safe, namespace: shop}}
spec: {{clusterIP: 10.96.0.9, selector: {{app: safe}}, ports: [{{name: http, port: 80, targetPort: {app}}}]}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {{name: safe, namespace: shop}}
spec: {{address: 127.0.0.1, labels: {{app: safe}}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {{name: safe, namespace: shop}}
spec:
  targetRefs: [{{group: "", kind: Service, name: safe}}]
  validation:
    hostname: safe.example.com
    caCertificateRefs: [{{group: "", kind: ConfigMap, name: roots}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: roots, namespace: shop}}
data:
  ca.crt: |
{roots}---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: safe, namespace: shop}}
spec: {{host: safe, {level.replace("SILENT", silent)}}}
"""
        async with gateway(text, listening=(port,)):
            assert (await ask(port, "any.example.com")).seen["app"] == "safe"


async def test_the_client_of_a_published_port_has_the_address_in_the_proxy_header():
    port = free_port()
    text = all_http(port, "{host: web}")
    async with application("web") as web, gateway(text + entry("web", web), listening=(port,)) as made:
        instance = Instance(
            "ingress-0", "edge", ("127.0.0.1",), labels_of({"istio": "ingress"}), gateway=True, published=(port,)
        )
        made.plane.put(ObjectKey("Instance", "edge", "ingress-0"), (instance,))
        await made.until_has(f"published_{port}")
        path = f"{made.directory}/published-{port}.sock"
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"PROXY TCP4 203.0.113.7 192.0.2.1 5000 80\r\n")
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"x-forwarded-for: 203.0.113.7" in await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert await reader.read() == b""
        # Elsewhere such a header is nothing but a bad request.
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PROXY TCP4 203.0.113.7 192.0.2.1 5000 80\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 400 " in await reader.read()


def listeners(text):
    mesh, problems = load(text)
    assert not problems
    resources, _ = compile_group(mesh, Group(ProxyKind.GATEWAY, "edge", labels_of({"istio": "ingress"})))
    return {each.name: each for each in resources.listeners}


def test_a_tcp_port_without_routes_has_no_listener():
    found = listeners(PASSING.format(tls=443, tcp=5432).split("---")[0])
    assert found == {}


STANDARD = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: edge, namespace: edge}}
spec:
  gatewayClassName: weft
  listeners:
    - name: tls
      port: {port}
      protocol: TLS
      hostname: "*.example.com"
      tls: {tls}
      allowedRoutes: {{namespaces: {{from: All}}}}
"""
STANDARD_ROUTE = """---
apiVersion: gateway.networking.k8s.io/v1alpha2
kind: TLSRoute
metadata: {{name: {to}, namespace: shop}}
spec:
  parentRefs: [{{name: edge, namespace: edge}}]
  hostnames: ["{host}"]
  rules: [{{backendRefs: [{{name: {to}, port: 80}}]}}]
"""


@pytest.mark.parametrize("ended", [True, False])
async def test_each_sni_goes_to_its_own_route_or_is_closed_if_that_has_no_backend(tmp_path, ended):
    """It does not go to the wider route: another application would get data that is not for it."""
    port, credentials = free_port(), Authority().issue("*.example.com")
    tls = "{mode: Terminate, certificateRefs: [{name: shop}]}" if ended else "{mode: Passthrough}"
    text = STANDARD.format(port=port, tls=tls) + pair("shop", credentials)
    for to, host in (("first", "a.example.com"), ("second", "*.example.com"), ("gone", "c.example.com")):
        text += STANDARD_ROUTE.format(to=to, host=host)
    context = None if ended else tls_server(credentials, tmp_path, "app")
    labels = {"gateway.networking.k8s.io/gateway-name": "edge"}
    async with application("first", context) as first, application("second", context) as second:
        text += entry("first", first, "TCP") + entry("second", second, "TCP")
        async with gateway(text, labels=labels, listening=(port,)):
            asked = {
                host: await ask(port, host, tls=trusting(credentials))
                for host in ("a.example.com", "b.example.com", "c.example.com")
            }
    assert {host: found.seen["app"] if found else None for host, found in asked.items()} == {
        "a.example.com": "first",
        "b.example.com": "second",
        "c.example.com": None,
    }
