"""Both sides of a call, each in a real Envoy with its own identity: app → outbound listener → mutual TLS → inbound
listener → app.

The result of translation is used unchanged, except that sockets are bound to loopback ports of this machine, because no
interception redirects connections to 15001 and 15006 here. Certificates come from an authority of the test, by SDS over
a Unix socket, as in a mesh.
"""

import asyncio
import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

import grpc
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryResponse
from envoy.service.secret.v3 import sds_pb2_grpc
from tools.ports import free_port

from authority import Authority
from golden.render import compile_group
from listening import until_listening
from model.builders import group, put, service
from weft.envoy import binary
from weft.envoy.validate import bootstrap
from weft.mesh.mesh import Mesh
from weft.model.instance import Instance
from weft.model.names import labels_of
from weft.model.proxy import ROOTS, SDS_CLUSTER
from weft.model.service import Protocol, ServicePort
from weft.model.sidecar import IngressListener, Sidecar
from weft.translate.built import Built

HOST = "orders.shop.svc.cluster.local"
FRONTEND = "spiffe://cluster.local/ns/shop/sa/frontend"
ORDERS = "spiffe://cluster.local/ns/shop/sa/orders"


@dataclass
class Pair:
    outbound: int  # where a caller's application reaches the service `orders`
    inbound: int  # where any client reaches the proxy of the service's pod
    authority: Authority


@contextlib.asynccontextmanager
async def pair(app_port, *values, **more):
    """Run both proxies; yields the port on which a caller reaches the service `orders`."""
    async with both(app_port, *values, **more) as made:
        yield made.outbound


@contextlib.asynccontextmanager
async def both(
    app_port,
    *values,
    protocol=Protocol.HTTP,
    settings=None,
    authority=None,
    caller=None,
    server=None,
    change=None,
    **instance,
):
    """`caller`, `server`: the identities of the two proxies, if not those that they should have. `change` may alter
    what the Envoys are started with."""
    authority = authority or Authority()
    inbound, outbound = free_port(), free_port()
    mesh = Mesh(settings)
    standing = {"meshed": True, "service_account": "orders", **instance}
    put(
        mesh,
        service("orders", protocol=protocol, target=inbound, addresses=("127.0.0.1",)),
        Instance("orders-0", "shop", ("127.0.0.1",), labels_of({"app": "orders"}), **standing),
        Sidecar(
            "orders",
            "shop",
            labels_of({"app": "orders"}),
            ingress=(IngressListener(ServicePort(inbound, protocol=protocol), f"127.0.0.1:{app_port}"),),
        ),
        *values,
    )
    calling, _ = compile_group(mesh, group("frontend"))
    receiving, _ = compile_group(mesh, group("orders"))
    async with contextlib.AsyncExitStack() as stack:
        for resources, port, ending, identity in (
            (receiving, inbound, "virtualInbound", server or authority.issue(ORDERS)),
            (calling, outbound, "_80", caller or authority.issue(FRONTEND)),
        ):
            listener = next(each for each in resources.listeners if each.name.endswith(ending))
            del listener.additional_addresses[:]
            listener.ClearField("bind_to_port")
            listener.address.socket_address.address = "127.0.0.1"
            listener.address.socket_address.port_value = port
            document = bootstrap(
                listeners=[listener],
                clusters=resources.clusters,
                routes=resources.routes,
                endpoints=resources.endpoints,
            )
            await stack.enter_async_context(_envoy(document, (port,), identity, change))
        yield Pair(outbound, inbound, authority)


@contextlib.asynccontextmanager
async def running(listeners, clusters, *, routes=(), endpoints=(), listening=(), change=None, secrets=()):
    """Run an Envoy with only these resources."""
    messages = [Cluster.FromString(each.body) if isinstance(each, Built) else each for each in clusters]
    document = bootstrap(listeners=listeners, clusters=messages, routes=routes, endpoints=endpoints)
    async with _envoy(document, listening, Authority().issue(ORDERS), change, secrets):
        yield


def ask_for_secrets_at(document, socket):
    """Make an Envoy with this bootstrap request its secrets at a Unix socket."""
    for cluster in document.static_resources.clusters:
        if cluster.name == SDS_CLUSTER:
            del cluster.load_assignment.endpoints[:]
            place = cluster.load_assignment.endpoints.add().lb_endpoints.add().endpoint
            place.address.pipe.path = socket
            options = HttpProtocolOptions()
            options.explicit_http_config.http2_protocol_options.SetInParent()
            cluster.typed_extension_protocol_options[HttpProtocolOptions.DESCRIPTOR.full_name].Pack(options)


@contextlib.asynccontextmanager
async def _envoy(document, listening, identity, change=None, secrets=()):
    """Run an Envoy with this identity and further secrets; yields when it listens on its ports."""
    if change is not None:
        change(document)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "bootstrap.pb")
        async with agent(f"{directory}/sds", identity, {secret.name: secret for secret in secrets}):
            ask_for_secrets_at(document, f"{directory}/sds")
            file.write_bytes(document.SerializeToString())
            process = await asyncio.create_subprocess_exec(
                *(str(binary.find()), "--config-path", str(file), "--disable-hot-restart", "--concurrency", "1"),
                *("--log-level", "error", "--file-flush-interval-msec", "20"),
            )
            try:
                for port in listening:
                    await until_listening("127.0.0.1", port, process)
                yield
            finally:
                process.terminate()
                await process.wait()


@contextlib.asynccontextmanager
async def agent(path, identity, more):
    """Serve the identity, and the secrets `more` by name, by SDS."""

    class Secrets(sds_pb2_grpc.SecretDiscoveryServiceServicer):
        async def StreamSecrets(self, requests, context):  # noqa: N802 (gRPC's own name)
            async for request in requests:
                if request.response_nonce:
                    continue
                for name in request.resource_names:
                    response = DiscoveryResponse(version_info="1", nonce="1", type_url=request.type_url)
                    response.resources.add().Pack(more.get(name) or _secret(name, identity))
                    yield response

    server = grpc.aio.server()
    sds_pb2_grpc.add_SecretDiscoveryServiceServicer_to_server(Secrets(), server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


def _secret(name, identity):
    secret = Secret(name=name)
    if name == ROOTS:
        secret.validation_context.trusted_ca.inline_bytes = identity.root
    else:
        secret.tls_certificate.certificate_chain.inline_bytes = identity.certificate
        secret.tls_certificate.private_key.inline_bytes = identity.key
    return secret


@contextlib.asynccontextmanager
async def app(handle):
    """A server of raw bytes on a free port of loopback."""
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
