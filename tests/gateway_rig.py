"""A gateway for tests: a real control plane, and a real Envoy as its gateway, on this machine's loopback.

The Envoy gets everything over the aggregated stream, as in a mesh; only its own identity comes from an authority of
the test. Applications are servers of the test, behind ServiceEntries.
"""

import asyncio
import base64
import contextlib
import json
import os
import signal
import ssl
import tempfile
from pathlib import Path

from tools.ports import free_port

from authority import Authority
from control.proxy import changes
from eventually import eventually
from translate.live import agent
from weft.control.plane import ControlPlane
from weft.envoy import binary
from weft.envoy.bootstrap import Bootstrap, BootstrapNode, Unix, render

IDENTITY = "spiffe://cluster.local/ns/edge/sa/ingress"


class Gateway:
    def __init__(self, plane, admin, directory, authority):
        self.plane, self.admin, self.directory, self.authority = plane, admin, directory, authority

    def apply(self, text):
        self.plane.apply(changes(text))

    async def dump(self):
        """The config dump of its Envoy, as text."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.admin)
        writer.write(b"GET /config_dump?include_eds HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer.decode()

    async def until_listening(self, *ports):
        """Wait until the ports accept connections; one that is closed at once counts, too."""
        for port in ports:
            await eventually(lambda port=port: _listens(port))

    async def until_has(self, *words):
        return await eventually(self.dump, lambda dump: all(word in dump for word in words))

    async def until_lacks(self, word):
        await eventually(self.dump, lambda dump: word not in dump)


@contextlib.asynccontextmanager
async def gateway(text, *, labels=None, namespace="edge", listening=(), memory=None):
    authority = Authority()
    with tempfile.TemporaryDirectory() as directory:
        plane = ControlPlane(memory=memory)
        plane.apply(changes(text))
        admin, ready, metrics = free_port(), free_port(), free_port()
        node = BootstrapNode(
            name="ingress-0",
            namespace=namespace,
            addresses=("127.0.0.1",),
            service_account="ingress",
            labels=labels or {"istio": "ingress"},
            kind="router",
        )
        await plane.listen(f"unix:{directory}/xds")
        file = Path(directory, "bootstrap.json")
        file.write_text(
            render(
                Bootstrap(
                    node=node,
                    xds=Unix(f"{directory}/xds"),
                    sds=Unix(f"{directory}/sds"),
                    admin_port=admin,
                    readiness_port=ready,
                    prometheus_port=metrics,
                )
            )
        )
        async with agent(f"{directory}/sds", authority.issue(IDENTITY), {}):
            process = await asyncio.create_subprocess_exec(
                *(str(binary.find()), "--config-path", str(file), "--disable-hot-restart", "--concurrency", "1"),
                *("--log-level", "error", "--file-flush-interval-msec", "20"),
                cwd=directory,
            )
            try:
                made = Gateway(plane, admin, directory, authority)
                await made.until_listening(admin, *listening)
                yield made
            finally:
                os.kill(process.pid, signal.SIGKILL)
                await process.wait()
                await plane.close()


@contextlib.asynccontextmanager
async def application(name="app", context=None):
    """An HTTP/1.1 server that returns its name and the request; yields its port."""

    async def answer(reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                first, *lines = head.strip().split("\r\n")
                body = json.dumps({"app": name, "line": first, "headers": lines}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


def entry(name, port, protocol="HTTP", host=None):
    """A service of the mesh whose only endpoint is this application."""
    return f"""---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: {name}, namespace: shop}}
spec:
  hosts: [{host or f"{name}.shop.svc.cluster.local"}]
  location: MESH_EXTERNAL
  ports: [{{number: 80, name: main, protocol: {protocol}, targetPort: {port}}}]
  resolution: STATIC
  endpoints: [{{address: 127.0.0.1}}]
"""


def all_http(port, to):
    """A gateway that accepts HTTP for every name on this port and routes it to one destination."""
    return f"""
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: public, namespace: edge}}
spec:
  selector: {{istio: ingress}}
  servers: [{{port: {{number: {port}, name: http, protocol: HTTP}}, hosts: ["*"]}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: all, namespace: shop}}
spec:
  hosts: ["*"]
  gateways: [edge/public]
  http: [{{route: [{{destination: {to}}}]}}]
"""


def secret(name, kind="kubernetes.io/tls", **held):
    lines = "".join(f"  {key.replace('_', '.')}: {base64.b64encode(value).decode()}\n" for key, value in held.items())
    return (
        f"---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: edge}}\ntype: {kind}\ndata:\n{lines}"
    )


def pair(name, credentials, **more):
    return secret(name, tls_crt=credentials.certificate, tls_key=credentials.key, **more)


def underscores(word):
    """The mesh's settings for headers with underscores."""
    return f"""---
apiVersion: v1
kind: ConfigMap
metadata: {{name: istio, namespace: istio-system, annotations: {{weft.dev/headers-with-underscores: {word}}}}}
data: {{mesh: "{{}}"}}
"""


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:200]!r}"

    @property
    def seen(self):
        return json.loads(self.body)

    def header(self, name):
        """A header as the application received it."""
        found = [line.split(": ", 1)[1] for line in self.seen["headers"] if line.lower().startswith(f"{name}: ")]
        return found[0] if found else None


async def ask(port, host, path="/", *, tls=None, name=None, headers=(), method="GET", at="127.0.0.1"):
    """Send one HTTP/1.1 request; None if the connection fails. `name` is the TLS server name."""
    try:
        async with asyncio.timeout(20):
            reader, writer = await asyncio.open_connection(
                at, port, ssl=tls, server_hostname=(name or host) if tls else None
            )
            more = "".join(f"{key}: {value}\r\n" for key, value in headers)
            writer.write(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            found = dict(line.lower().split(": ", 1) for line in lines)
            body = await reader.readexactly(int(found.get("content-length", 0)))
            writer.close()
    except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
        return None
    return Answer(int(first.split()[1]), found, body)


def trusting(credentials, *, shows=None, directory=None, protocols=("http/1.1",), least=None, most=None):
    """A client that trusts the issuer of these credentials, and presents others."""
    context = ssl.create_default_context(cadata=credentials.root.decode())
    context.set_alpn_protocols(list(protocols))
    if least:
        context.minimum_version = least
    if most:
        context.maximum_version = most
    if shows is not None:
        with tempfile.TemporaryDirectory(dir=directory) as place:
            Path(place, "crt").write_bytes(shows.certificate)
            Path(place, "key").write_bytes(shows.key)
            context.load_cert_chain(Path(place, "crt"), Path(place, "key"))
    return context


async def _listens(port):
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
