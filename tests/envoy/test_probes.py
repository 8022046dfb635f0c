"""A real Envoy in a pod of its own. kubelet probes from outside, and the interception rules redirect every
connection without mutual TLS to an inbound listener that rejects it. The result of a probe must still be the
application's."""

import asyncio
import contextlib
import datetime
import ipaddress
import json
import os
import socket
import ssl
import subprocess

import aiohttp
import grpc
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from eventually import eventually
from weft.envoy import binary, command
from weft.envoy.bootstrap import Bootstrap, BootstrapNode, Unix
from weft.model.app_probe import AppProbe, GrpcCheck, HttpCheck, TcpCheck
from weft.model.proxy import PROXY_GID, PROXY_UID
from weft.netns import iptables
from weft.netns import namespace as netns
from weft.netns.interception import Interception
from weft.netns.loopback import carry_inbound_source
from weft.netns.process import Spawn, end, spawn
from weft.netns.view import View

pytestmark = pytest.mark.root

POD, KUBELET = "10.96.7.2", "10.96.7.1"
STATUS = 15020
# Only TLS matches a filter chain, as with STRICT mutual TLS for a client without a certificate.
STRICT = {
    "name": "virtualInbound",
    "address": {"socket_address": {"address": "0.0.0.0", "port_value": 15006}},
    "listener_filters": [
        {
            "name": "envoy.filters.listener.tls_inspector",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"
            },
        }
    ],
    "filter_chains": [
        {
            "filter_chain_match": {"transport_protocol": "tls", "application_protocols": ["istio"]},
            "filters": [
                {
                    "name": "envoy.filters.network.tcp_proxy",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
                        "stat_prefix": "inbound",
                        "cluster": "own-admin",
                    },
                }
            ],
        }
    ],
}


class World:
    """The pod, the node beside it, and the answers that kubelet gets."""

    def __init__(self, pod, node, cleanup):
        self.pod, self.node, self._cleanup = pod, node, cleanup

    def listening(self, port, address=POD):
        made = netns.socket_in(self.pod)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        made.listen()
        return made

    async def http(self, port, handle, *, tls=None):
        """An application that answers with the result of `handle`, on the pod's own address only."""
        runner = web.ServerRunner(web.Server(handle), handle_signals=False, shutdown_timeout=0.1)
        await runner.setup()
        site = web.SockSite(runner, self.listening(port), ssl_context=tls)
        await site.start()
        self._cleanup.push_async_callback(runner.cleanup)

    async def kubelet(self, path, *, port=STATUS, headers=None, timeout=5.0):
        connector = aiohttp.TCPConnector(socket_factory=lambda _: netns.socket_in(self.node), force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=timeout)) as session,
            session.get(f"http://{POD}:{port}{path}", headers=headers, allow_redirects=False) as answer,
        ):
            return answer.status, await answer.text(), dict(answer.headers)

    async def verdict(self, path):
        return (await self.kubelet(path))[0]

    async def until(self, path, status):
        await eventually(lambda: self.verdict(path), lambda value: value == status)


@pytest.fixture
async def world():
    name = f"weft-probe-{os.getpid()}"
    pod, node = netns.make(f"{name}-pod"), netns.make(f"{name}-node")
    for line in (
        f"ip -n {pod.name} link set lo up",
        f"ip -n {node.name} link set lo up",
        f"ip -n {node.name} link add pod type veth peer name eth0 netns {pod.name}",
        f"ip -n {pod.name} addr add {POD}/24 dev eth0",
        f"ip -n {node.name} addr add {KUBELET}/24 dev pod",
        f"ip -n {pod.name} link set eth0 up",
        f"ip -n {node.name} link set pod up",
    ):
        subprocess.run(line.split(), check=True)
    carry_inbound_source(pod)
    iptables.apply(pod, Interception())
    async with contextlib.AsyncExitStack() as cleanup:
        yield World(pod, node, cleanup)
    netns.delete(pod)
    netns.delete(node)


@pytest.fixture
async def envoy(world, tmp_path, control_plane):
    """Starts Envoy with these probes and a strict inbound side, and waits until it is ready."""
    tmp_path.chmod(0o755)
    async with contextlib.AsyncExitStack() as cleanup:

        async def start(*probes):
            node = BootstrapNode(name="web-0", namespace="shop", addresses=(POD,))
            bootstrap = Bootstrap(node=node, xds=Unix(control_plane[0]), status_port=STATUS, probes=probes)
            prepared = command.prepare(bootstrap, binary.find(), tmp_path)
            file = tmp_path / command.BOOTSTRAP_FILE
            document = json.loads(file.read_text())
            document["static_resources"]["listeners"].append(STRICT)
            file.write_text(json.dumps(document))
            log = cleanup.enter_context((tmp_path / "envoy.log").open("w+"))
            process = await spawn(
                Spawn(
                    argv=prepared.argv,
                    environment=prepared.environment,
                    working_directory=prepared.working_directory,
                    view=View(visible=prepared.visible),
                    namespace=world.pod,
                    uid=PROXY_UID,
                    gid=PROXY_GID,
                    stdout=log.fileno(),
                    stderr=log.fileno(),
                )
            )
            cleanup.push_async_callback(end, process)
            await eventually(
                lambda: world.kubelet("/healthz/ready", port=15021),
                lambda answer: answer[0] == 200,
                retry=(OSError, aiohttp.ClientError),
            )
            return tmp_path / "envoy.log"

        yield start


def probe(path, check, **more):
    return AppProbe(path=f"/app-health/web/{path}", check=check, **more)


async def test_the_applications_own_response_reaches_kubelet_under_strict(world, envoy):
    seen = []

    async def app(request):
        seen.append(request)
        return web.Response(status=200 if request.path == "/ok" else 500, text=request.path_qs)

    await world.http(8080, app)
    log = await envoy(
        probe("readyz", HttpCheck(port=8080, path="/ok?deep=1&x=%20y", host=f"{POD}:8080")),
        probe("livez", HttpCheck(port=8080, path="/bad", host=f"{POD}:8080")),
    )
    with pytest.raises((aiohttp.ClientError, OSError)):
        await world.kubelet("/ok", port=8080)  # without this failure the assertions below prove nothing
    headers = {"User-Agent": "kube-probe/1.34", "X-Custom": "yes"}
    status, text, _ = await world.kubelet("/app-health/web/readyz", headers=headers)
    assert (status, text) == (200, "/ok?deep=1&x=%20y")
    assert seen[0].headers["host"] == f"{POD}:8080"
    assert seen[0].headers["user-agent"] == "kube-probe/1.34"
    assert seen[0].headers["x-custom"] == "yes"
    assert not [name for name in seen[0].headers if name.lower().startswith(("x-forwarded", "x-envoy", "x-request"))]
    assert await world.verdict("/app-health/web/livez") == 500
    assert await world.verdict("/app-health/web/startupz") == 404
    assert await world.verdict("/ok") == 404
    assert log.read_text() == ""


async def test_kubelets_own_host_header_is_kept_where_a_probe_has_one(world, envoy):
    async def app(request):
        return web.Response(text=request.headers["host"])

    await world.http(8080, app)
    await envoy(probe("readyz", HttpCheck(port=8080)))
    _, text, _ = await world.kubelet("/app-health/web/readyz", headers={"Host": "shop.example"})
    assert text == "shop.example"


async def test_a_closed_port_and_a_timeout_are_failures(world, envoy):
    async def slow(request):
        await asyncio.sleep(30)

    await world.http(8081, slow)
    await envoy(probe("readyz", HttpCheck(port=8080)), probe("livez", HttpCheck(port=8081), timeout=1))
    assert await world.verdict("/app-health/web/readyz") == 503
    assert await world.verdict("/app-health/web/livez") == 504


async def test_a_redirect_reaches_kubelet_without_its_location(world, envoy):
    async def app(request):
        return web.Response(status=302, headers={"location": "/login"})

    await world.http(8080, app)
    await envoy(probe("readyz", HttpCheck(port=8080)))
    status, _, headers = await world.kubelet("/app-health/web/readyz")
    assert status == 302
    assert "location" not in {name.lower() for name in headers}


async def test_an_https_probe_does_not_verify_the_certificate(world, envoy, tmp_path):
    async def app(request):
        return web.Response(status=200 if request.path == "/ok" else 418)

    await world.http(8443, app, tls=_self_signed(tmp_path))
    await envoy(
        probe("readyz", HttpCheck(port=8443, path="/ok", tls=True)),
        probe("livez", HttpCheck(port=8443, path="/", tls=True)),
        probe("startupz", HttpCheck(port=8443, path="/ok")),
    )
    assert await world.verdict("/app-health/web/readyz") == 200
    assert await world.verdict("/app-health/web/livez") == 418
    assert await world.verdict("/app-health/web/startupz") >= 400


async def test_a_port_is_found_when_it_opens_and_missed_when_it_closes(world, envoy):
    await envoy(probe("readyz", TcpCheck(port=9000), period=1))
    assert await world.verdict("/app-health/web/readyz") == 503
    listening = world.listening(9000)
    await world.until("/app-health/web/readyz", 200)
    listening.close()
    await world.until("/app-health/web/readyz", 503)


async def test_a_port_on_loopback_only_is_not_ready(world, envoy):
    await envoy(probe("readyz", TcpCheck(port=9000), period=1), probe("livez", TcpCheck(port=9001), period=1))
    with world.listening(9000, "127.0.0.1"), world.listening(9001):
        await world.until("/app-health/web/livez", 200)
        assert await world.verdict("/app-health/web/readyz") == 503


async def test_a_grpc_probe_checks_the_service_that_it_names(world, envoy):
    serving = {"": 1, "shop.Cart": 2}  # SERVING, NOT_SERVING

    async def check(request, context):
        length = request[1] if request else 0
        status = serving.get(request[2 : 2 + length].decode() if request else "")
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return bytes([8, status])

    handler = grpc.unary_unary_rpc_method_handler(check)
    server = grpc.aio.server()
    handlers = grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler})
    server.add_generic_rpc_handlers([handlers])
    # gRPC opens its own sockets, in the network namespace of the calling thread.
    assert netns.run_in(world.pod, lambda: _bound(server, f"{POD}:50051"))
    await server.start()
    try:
        await envoy(
            probe("readyz", GrpcCheck(port=50051), period=1),
            probe("livez", GrpcCheck(port=50051, service="shop.Cart"), period=1),
            probe("startupz", GrpcCheck(port=50051, service="shop.Nobody"), period=1),
        )
        await world.until("/app-health/web/readyz", 200)
        assert await world.verdict("/app-health/web/livez") == 503
        assert await world.verdict("/app-health/web/startupz") == 503
        serving["shop.Cart"] = 1
        await world.until("/app-health/web/livez", 200)
    finally:
        await server.stop(0)


async def test_the_proxys_metrics_are_served_on_the_same_port(world, envoy):
    await envoy()
    status, text, _ = await world.kubelet("/stats/prometheus")
    assert status == 200
    assert "envoy_server_live" in text


def _bound(server, address):
    return server.add_insecure_port(address)


def _self_signed(directory):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "app")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now - datetime.timedelta(days=1))  # expired
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("192.0.2.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = directory / "app.pem"
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(pem + certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context
