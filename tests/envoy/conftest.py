"""Real Envoys in real network namespaces, and a control plane that answers every request with an empty response."""

import asyncio
import contextlib
import itertools
import os
import subprocess

import grpc
import pytest
from envoy.service.discovery.v3 import discovery_pb2

from weft.envoy import binary, command
from weft.envoy.admin import Admin
from weft.envoy.bootstrap import Bootstrap, BootstrapNode, Unix
from weft.model.proxy import PROXY_GID, PROXY_UID
from weft.netns import namespace as netns
from weft.netns.process import Spawn, end, spawn
from weft.netns.view import View

_numbers = itertools.count()
_METHODS = "envoy.service.discovery.v3.AggregatedDiscoveryService"


@pytest.fixture
def namespace():
    made = netns.make(f"weft-envoy-{os.getpid()}-{next(_numbers)}")
    subprocess.run(["ip", "-n", made.name, "link", "set", "lo", "up"], check=True)
    yield made
    netns.delete(made)


@pytest.fixture
def pod_directory(tmp_path):
    tmp_path.chmod(0o755)
    return tmp_path


@pytest.fixture
async def control_plane(pod_directory):
    """Serves delta ADS on a Unix socket and keeps the nodes that connected; yields (path, nodes)."""
    nodes = []

    async def serve(requests, context):
        async for request in requests:
            if request.node.id:
                nodes.append(request.node)
            if not request.response_nonce:
                yield discovery_pb2.DeltaDiscoveryResponse(type_url=request.type_url, nonce="1")

    handler = grpc.stream_stream_rpc_method_handler(
        serve,
        request_deserializer=discovery_pb2.DeltaDiscoveryRequest.FromString,
        response_serializer=discovery_pb2.DeltaDiscoveryResponse.SerializeToString,
    )
    server = grpc.aio.server()
    handlers = grpc.method_handlers_generic_handler(_METHODS, {"DeltaAggregatedResources": handler})
    server.add_generic_rpc_handlers([handlers])
    path = pod_directory / "xds.sock"
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    path.chmod(0o666)
    yield str(path), nodes
    await server.stop(0)


@pytest.fixture
async def start_envoy(namespace, pod_directory):
    """Starts an Envoy as user 1337 in the namespace; returns (admin, process, log file)."""
    async with contextlib.AsyncExitStack() as cleanup:

        async def start(xds_path, **options):
            node = BootstrapNode(
                name="web-0", namespace="shop", workload="web", addresses=("10.97.1.1",), labels={"app": "web"}
            )
            bootstrap = Bootstrap(node=node, xds=Unix(xds_path), **options)
            prepared = command.prepare(bootstrap, binary.find(), pod_directory)
            log = cleanup.enter_context((pod_directory / "envoy.log").open("w+"))
            process = await spawn(
                Spawn(
                    argv=prepared.argv,
                    environment=prepared.environment,
                    working_directory=prepared.working_directory,
                    view=View(visible=prepared.visible),
                    namespace=namespace,
                    uid=PROXY_UID,
                    gid=PROXY_GID,
                    stdout=log.fileno(),
                    stderr=log.fileno(),
                )
            )
            cleanup.push_async_callback(end, process)
            admin = Admin(lambda: netns.socket_in(namespace), name="Envoy web-0")
            cleanup.push_async_callback(admin.close)
            return admin, process, log.name

        yield start


@pytest.fixture
async def ready_envoy(start_envoy, control_plane):
    path, _ = control_plane
    admin, process, log = await start_envoy(path)
    async with asyncio.timeout(20):
        await admin.wait_until_ready()
    return admin, process, log
