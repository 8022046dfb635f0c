"""Validates xDS resources with `envoy --mode validate`, before any proxy gets them.

Input: listeners, clusters, routes and endpoints as protobuf messages. Output: problems. Routes and endpoints, which
Envoy does not fetch in this mode, are inlined into the listeners and clusters that refer to them, so that Envoy
validates all resources.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from envoy.config.bootstrap.v3 import bootstrap_pb2
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from google.protobuf import json_format

from weft.base.problem import Problem, Where
from weft.envoy import binary
from weft.envoy.bootstrap import RUNTIME, XDS_CLUSTER
from weft.model.proxy import SDS_CLUSTER

# A log entry may have several lines; the next entry begins with a log level.
_ENTRY = re.compile(r"^(?=(?:warning|error|critical) )", re.MULTILINE)
_MANAGER = http_connection_manager_pb2.HttpConnectionManager
_BACKSTAGE = {
    "node": {"id": "validate", "cluster": "validate"},
    "layered_runtime": {"layers": [{"name": "weft", "static_layer": RUNTIME}]},
    "dynamic_resources": {
        "ads_config": {
            "api_type": "DELTA_GRPC",
            "transport_api_version": "V3",
            "grpc_services": [{"envoy_grpc": {"cluster_name": XDS_CLUSTER}}],
        }
    },
}


async def validate(
    *,
    listeners: Sequence[listener_pb2.Listener] = (),
    clusters: Sequence[cluster_pb2.Cluster] = (),
    routes: Sequence[route_pb2.RouteConfiguration] = (),
    endpoints: Sequence[endpoint_pb2.ClusterLoadAssignment] = (),
    envoy: Path | None = None,
) -> list[Problem]:
    """Return why Envoy rejects these resources; an empty list if it accepts them. The arguments are not changed."""
    document = bootstrap(listeners=listeners, clusters=clusters, routes=routes, endpoints=endpoints)
    command = str(envoy or binary.find())
    with tempfile.TemporaryDirectory(prefix="weft-validate-") as directory:
        file = Path(directory, "bootstrap.pb")
        file.write_bytes(document.SerializeToString())
        process = await asyncio.create_subprocess_exec(
            *(command, "--mode", "validate", "--config-path", str(file)),
            *("--log-level", "warning", "--log-format", "%l %v", "--disable-hot-restart", "--concurrency", "1"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
    if process.returncode == 0:
        return []
    return [Problem(Where(object="Envoy"), what) for what in _complaints(output.decode(errors="replace"), str(file))]


def bootstrap(
    *,
    listeners: Sequence[listener_pb2.Listener] = (),
    clusters: Sequence[cluster_pb2.Cluster] = (),
    routes: Sequence[route_pb2.RouteConfiguration] = (),
    endpoints: Sequence[endpoint_pb2.ClusterLoadAssignment] = (),
) -> bootstrap_pb2.Bootstrap:
    """Return a static bootstrap that contains all of these resources; `validate` lets Envoy check it."""
    routes_by_name = {route.name: route for route in routes}
    endpoints_by_name = {assignment.cluster_name: assignment for assignment in endpoints}
    document = json_format.ParseDict(_BACKSTAGE, bootstrap_pb2.Bootstrap())
    for name in (XDS_CLUSTER, SDS_CLUSTER):
        document.static_resources.clusters.add(name=name).load_assignment.cluster_name = name
    for cluster in clusters:
        _with_endpoints(document.static_resources.clusters.add(), cluster, endpoints_by_name)
    used: set[str] = set()
    for listener in listeners:
        copy = document.static_resources.listeners.add()
        copy.CopyFrom(listener)
        used |= _put_routes_inside(copy, routes_by_name)
    unused = [route for name, route in routes_by_name.items() if name not in used]
    if unused:
        _add_listener_for(document.static_resources.listeners.add(), unused)
    return document


def _with_endpoints(
    copy: cluster_pb2.Cluster, cluster: cluster_pb2.Cluster, endpoints: Mapping[str, endpoint_pb2.ClusterLoadAssignment]
) -> None:
    copy.CopyFrom(cluster)
    if cluster.type != cluster_pb2.Cluster.EDS:
        return
    copy.type = cluster_pb2.Cluster.STATIC
    copy.ClearField("eds_cluster_config")
    assignment = endpoints.get(cluster.eds_cluster_config.service_name or cluster.name)
    if assignment is not None:
        copy.load_assignment.CopyFrom(assignment)
    copy.load_assignment.cluster_name = cluster.name


def _put_routes_inside(listener: listener_pb2.Listener, routes: Mapping[str, route_pb2.RouteConfiguration]) -> set[str]:
    used = set()
    chains = [*listener.filter_chains]
    if listener.HasField("default_filter_chain"):
        chains.append(listener.default_filter_chain)
    for network_filter in (each for chain in chains for each in chain.filters):
        if not network_filter.typed_config.Is(_MANAGER.DESCRIPTOR):
            continue
        manager = _MANAGER.FromString(network_filter.typed_config.value)
        name = manager.rds.route_config_name
        if manager.HasField("rds") and name in routes:
            used.add(name)
            manager.route_config.CopyFrom(routes[name])
            network_filter.typed_config.value = manager.SerializeToString()
    return used


def _add_listener_for(listener: listener_pb2.Listener, routes: Sequence[route_pb2.RouteConfiguration]) -> None:
    """Fill `listener` with one filter chain for each of `routes`. These are the route configurations that no other
    listener refers to; in this way Envoy validates them too. The listener's port is never opened."""
    listener.name = "routes-without-a-listener"
    listener.address.socket_address.address = "127.0.0.1"
    listener.address.socket_address.port_value = 1
    for number, route in enumerate(routes):
        manager = _MANAGER(stat_prefix="validate")
        manager.route_config.CopyFrom(route)
        router = manager.http_filters.add(name="envoy.filters.http.router")
        router.typed_config.type_url = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
        chain = listener.filter_chains.add(name=route.name or str(number))
        chain.filter_chain_match.destination_port.value = number + 1
        network_filter = chain.filters.add(name="envoy.filters.network.http_connection_manager")
        network_filter.typed_config.Pack(manager)


def _complaints(output: str, file: str) -> Iterator[str]:
    """Yield the error messages in Envoy's `output`, each once. The path of the temporary config file (`file`) and
    the dump of its content are removed from them."""
    seen: dict[str, None] = {}
    for entry in _ENTRY.split(output):
        level, _, message = entry.partition(" ")
        if level in ("critical", "error"):
            message = message.replace(f"error initializing configuration '{file}': ", "")
            seen.setdefault(message.rsplit("\n: ", 1)[-1].strip())
    yield from seen or [output.strip() or "Envoy rejected the resources without a message"]
