"""Simulates up to a thousand proxies: delta ADS clients in one process, which subscribe to resources and ACK them as
Envoy does.

Each client has its own connection. It subscribes to all clusters and listeners, then by name to the endpoints and
routes that the clusters and listeners refer to. Commands arrive as JSON lines on standard input, and each command
gets one JSON line as its reply. The process counts the bytes and messages received since the last command,
separately for clients with a narrow scope (one namespace) and with a wide scope (all namespaces).
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from functools import lru_cache
from typing import Any

import grpc
import grpc.aio
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse

_METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
_TYPES = "type.googleapis.com"
CLUSTER = f"{_TYPES}/envoy.config.cluster.v3.Cluster"
LISTENER = f"{_TYPES}/envoy.config.listener.v3.Listener"
ENDPOINT = f"{_TYPES}/envoy.config.endpoint.v3.ClusterLoadAssignment"
ROUTE = f"{_TYPES}/envoy.config.route.v3.RouteConfiguration"
_LEADS_TO = {CLUSTER: ENDPOINT, LISTENER: ROUTE}
_ORDER_SECONDS = 180.0


class Received:
    """The bytes and messages that the clients received since the last command."""

    def __init__(self) -> None:
        self.bytes = {"wide": 0, "narrow": 0}
        self.messages = {"wide": 0, "narrow": 0}
        self.clients: set[int] = set()
        self.last = time.monotonic()


class Clients:
    def __init__(self) -> None:
        self.received = Received()
        self.failure = ""
        self._tasks: list[asyncio.Task[None]] = []

    async def connect(self, address: str, nodes: list[dict[str, Any]]) -> None:
        # Connect in small batches: the rig measures pushes, not a queue of connection attempts.
        for index, node in enumerate(nodes):
            self._tasks.append(asyncio.create_task(self._run(index, address, node)))
            if index % 20 == 19:
                await asyncio.sleep(0.01)

    async def settle(self, clients: int, quiet: float) -> dict[str, Any]:
        """Wait until `clients` clients have received something and no message arrived for `quiet` seconds. Return
        the counts of messages and bytes since the last call, or an error."""
        until = time.monotonic() + _ORDER_SECONDS
        while True:
            now = time.monotonic()
            if self.failure:
                return {"error": self.failure}
            if len(self.received.clients) >= clients and now - self.received.last > quiet:
                break
            if now > until:
                reached = f"{len(self.received.clients)} of {clients} clients"
                return {"error": f"only {reached} received a message within {_ORDER_SECONDS:.0f} s"}
            await asyncio.sleep(0.02)
        received, self.received = self.received, Received()
        return {
            "clients": len(received.clients),
            "bytes": received.bytes,
            "messages": received.messages,
            "last": received.last,
        }

    async def _run(self, index: int, address: str, node: dict[str, Any]) -> None:
        width = "narrow" if node["narrow"] else "wide"
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1))
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            call: Any = channel.stream_stream(_METHOD)()
            first = DeltaDiscoveryRequest(type_url=CLUSTER)
            first.node.id = node["id"]
            first.node.metadata.update(node["metadata"])
            await call.write(first.SerializeToString())
            await call.write(DeltaDiscoveryRequest(type_url=LISTENER).SerializeToString())
            subscribed: dict[str, set[str]] = {ENDPOINT: set(), ROUTE: set()}
            while True:
                payload = await call.read()
                if payload is grpc.aio.EOF:
                    self.failure = f"the control plane closed a stream: {await call.details()}"
                    return
                received = self.received
                received.bytes[width] += len(payload)
                received.messages[width] += 1
                received.clients.add(index)
                received.last = time.monotonic()
                type_url, nonce, names = _read(payload)
                await call.write(DeltaDiscoveryRequest(type_url=type_url, response_nonce=nonce).SerializeToString())
                next_type = _LEADS_TO.get(type_url)
                if next_type and (new := names - subscribed[next_type]):
                    subscribed[next_type] |= new
                    request = DeltaDiscoveryRequest(type_url=next_type, resource_names_subscribe=sorted(new))
                    await call.write(request.SerializeToString())


@lru_cache(maxsize=512)
def _read(payload: bytes) -> tuple[str, str, frozenset[str]]:
    """Return the type URL and nonce of a response, and the names of the resources that its clusters (EDS) or
    listeners (RDS) refer to. All clients of a group receive identical bytes, so the cache decodes each response
    once."""
    response = DeltaDiscoveryResponse.FromString(payload)
    names: set[str] = set()
    for resource_ in response.resources:
        if response.type_url == CLUSTER:
            cluster = Cluster.FromString(resource_.resource.value)
            if cluster.type == Cluster.EDS:
                names.add(cluster.eds_cluster_config.service_name or cluster.name)
        elif response.type_url == LISTENER:
            listener = Listener.FromString(resource_.resource.value)
            for chain in (*listener.filter_chains, listener.default_filter_chain):
                for each in chain.filters:
                    manager = HttpConnectionManager()
                    if each.typed_config.Unpack(manager) and manager.HasField("rds"):
                        names.add(manager.rds.route_config_name)
    return response.type_url, response.nonce, frozenset(names)


async def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    clients = Clients()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        if order["do"] == "connect":
            await clients.connect(order["address"], order["nodes"])
            answer: dict[str, Any] = {}
        else:
            answer = await clients.settle(order["clients"], order["quiet"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
