"""Minimal Envoy resources, and a backend that responds to requests."""

from __future__ import annotations

from contextlib import asynccontextmanager
from hashlib import blake2b

import msgspec
from aiohttp import web
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from google.protobuf import json_format

assert router_pb2  # named by its type only; the message must be known to be packed into an Any
ADS = {"ads": {}, "resource_api_version": "V3"}
MANAGER = "type.googleapis.com/" + http_connection_manager_pb2.HttpConnectionManager.DESCRIPTOR.full_name
ROUTER = "type.googleapis.com/" + router_pb2.Router.DESCRIPTOR.full_name


class Resource(msgspec.Struct, frozen=True):
    name: str
    version: str
    body: bytes


def by_name(*resources: Resource) -> dict[str, Resource]:
    return {resource.name: resource for resource in resources}


def cluster(name: str, **fields: object) -> Resource:
    return _resource(
        name,
        cluster_pb2.Cluster(),
        {"name": name, "type": "EDS", "eds_cluster_config": {"eds_config": ADS}, "connect_timeout": "2s", **fields},
    )


def endpoints(name: str, *ports: int) -> Resource:
    addresses = [
        {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}} for port in ports
    ]
    message = endpoint_pb2.ClusterLoadAssignment()
    locality = {"region": "here"}  # gRPC wants a locality with a name and a weight
    group = {"locality": locality, "load_balancing_weight": 1, "lb_endpoints": addresses}
    return _resource(name, message, {"cluster_name": name, "endpoints": [group]})


def listener(name: str, route: str, port: int = 0) -> Resource:
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    filters = [{"name": "manager", "typed_config": _manager(route)}]
    fields = {"name": name, "address": address, "filter_chains": [{"filters": filters}]}
    return _resource(name, listener_pb2.Listener(), fields)


def api_listener(name: str, route: str) -> Resource:
    fields = {"name": name, "api_listener": {"api_listener": _manager(route)}}
    return _resource(name, listener_pb2.Listener(), fields)


def route(name: str, to_cluster: str) -> Resource:
    routes = [{"match": {"prefix": ""}, "route": {"cluster": to_cluster}}]
    fields = {
        "name": name,
        "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}],
        "validate_clusters": False,
    }
    return _resource(name, route_pb2.RouteConfiguration(), fields)


@asynccontextmanager
async def backend(answer: str):
    """Run an HTTP server on loopback that always responds with `answer`. Yields its port."""

    async def handle(_: web.Request) -> web.Response:
        return web.Response(text=answer)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _manager(route_name: str) -> dict[str, object]:
    return {
        "@type": MANAGER,
        "stat_prefix": "http",
        "rds": {"config_source": ADS, "route_config_name": route_name},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER}}],
    }


def _resource(name: str, message, fields: dict[str, object]) -> Resource:
    body = json_format.ParseDict(fields, message).SerializeToString(deterministic=True)
    return Resource(name, blake2b(body, digest_size=8).hexdigest(), body)
