"""Builds the config for gRPC's own xDS client (proxyless): for each service port, an API listener for each name by
which the service can be called, its routes, and its clusters. Rule: this client rejects a whole resource for one
unknown policy, so features that it does not support are left out."""

from __future__ import annotations

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.http.fault.v3.fault_pb2 import HTTPFault
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
    HttpFilter,
)

from weft.model.destination_rule import Subset, asks_for_tls
from weft.model.service import Protocol, Resolution, Service, ServicePort
from weft.model.settings import Settings
from weft.translate import filters, names, policy
from weft.translate.built import Built, build
from weft.translate.contribution import Contribution, VirtualHost
from weft.translate.domains import domains
from weft.translate.protos import duration, from_control_plane, packed
from weft.translate.provenance import keys, of_objects
from weft.translate.routes import host_of
from weft.translate.view import ServiceView


def contribute(view: ServiceView, settings: Settings) -> Contribution:
    service = view.service
    if service is None or service.resolution is not Resolution.STATIC:
        return Contribution()
    ports, behind = ([port for port in candidates if _is_spoken(port)] for candidates in (view.ports, view.behind))
    subsets: tuple[Subset | None, ...] = (None, *(view.rule.subsets if view.rule else ()))
    return Contribution(
        clusters=tuple(
            _cluster(view, port, subset, settings)
            for port in (*ports, *behind)
            for subset in subsets
            # gRPC's client does not support TLS settings. Without the cluster its calls fail instead of going out in
            # plaintext.
            if not asks_for_tls(policy.effective(view.rule, port.number, subset))
        ),
        listeners=tuple(
            _listener(f"{name}:{port.number}", f"{view.host}:{port.number}", service)
            for port in ports
            for name in domains(view.host, service, view.caller.namespace, settings.domain)
            if not name.startswith("*")
        ),
        hosts=tuple((f"{view.host}:{port.number}", _host(view, port)) for port in ports),
    )


def _is_spoken(port: ServicePort) -> bool:
    return port.protocol.is_http or port.protocol is Protocol.UNDECLARED


def _cluster(view: ServiceView, port: ServicePort, subset: Subset | None, settings: Settings) -> Built:
    name = names.outbound_cluster(view.host, port.number, subset.name if subset else "")
    chosen = policy.effective(view.rule, port.number, subset)
    cluster = Cluster(name=name, type=Cluster.EDS, connect_timeout=duration(settings.connect_timeout))
    cluster.eds_cluster_config.eds_config.CopyFrom(from_control_plane())
    balancer = chosen.load_balancer
    if balancer is not None and balancer.consistent_hash is not None and not balancer.consistent_hash.maglev:
        policy.balance(cluster, balancer)
    policy.limit(cluster, chosen.connection_pool)
    policy.eject(cluster, chosen.outlier_detection)
    cluster.ClearField("upstream_connection_options")
    sources = keys(*(view.service.origins if view.service else ()), *(view.rule.origins if view.rule else ()))
    cluster.metadata.CopyFrom(of_objects(sources))
    return build(name, cluster, sources)


def _listener(name: str, route_name: str, service: Service) -> Built:
    manager = HttpConnectionManager()
    manager.rds.route_config_name = route_name
    manager.rds.config_source.CopyFrom(from_control_plane())
    manager.http_filters.extend(
        [
            HttpFilter(name=filters.FAULT, typed_config=packed(HTTPFault())),
            HttpFilter(name=filters.ROUTER, typed_config=packed(Router())),
        ]
    )
    listener = Listener(name=name)
    listener.api_listener.api_listener.CopyFrom(packed(manager))
    return build(name, listener, keys(service.origin))


def _host(view: ServiceView, port: ServicePort) -> VirtualHost:
    """Return the virtual host of a service port. It matches every domain, because the listener already identifies the
    service."""
    virtual_host = host_of(view, port.number, ("*",))
    message = RouteConfiguration.FromString(virtual_host.fragment)
    for route in message.virtual_hosts[0].routes:
        for unknown in (filters.CORS, filters.GRPC_WEB, filters.MARK):
            route.typed_per_filter_config.pop(unknown, None)
        if route.HasField("route"):
            # grpc_timeout_header_max is the only timeout that gRPC's client reads.
            route.route.max_stream_duration.grpc_timeout_header_max.CopyFrom(route.route.timeout)
    fragment: bytes = message.SerializeToString(deterministic=True)
    return VirtualHost(virtual_host.name, fragment, virtual_host.sources, virtual_host.domains, virtual_host.claims)
