"""Renders the bootstrap of an Envoy: its node, the addresses of its xDS and SDS servers, its own ports and its
stats.

Input: a Bootstrap value. Output (`render`): the JSON that Envoy reads. All configuration of traffic is sent later by
xDS. Names, ports and metadata keys are those of Istio, so that istioctl and Istio's dashboards work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from weft.envoy import probes
from weft.model.app_probe import AppProbe
from weft.model.proxy import ADMIN_PORT, CERTIFICATE, PROMETHEUS_PORT, READINESS_PORT, ROOTS, SDS_CLUSTER

XDS_CLUSTER = "xds-grpc"
ADMIN_CLUSTER = "own-admin"  # not `admin`: Envoy itself uses that name for the stats of its admin API

RUNTIME = {
    # By default Envoy rejects a regular expression whose program has more than 100 steps; this is Istio's limit.
    "re2.max_program_size.error_level": 32768,
    # The largest response, in bytes, to a request that Envoy sends itself, such as a JWKS or an ext_authz check.
    # Envoy's default is 32 MB.
    "http.async_response_buffer_limit": 1 << 20,
    # By default Envoy closes a connection when most of its requests were reset, each within a second. But a connection
    # between proxies carries the requests of many callers, and one caller's resets must not end the requests of others.
    # Instead each listener limits the resets of its clients (`translate/resilience.py`).
    "overload.premature_reset_total_stream_count": (1 << 32) - 1,
    # How many requests Envoy processes of what it reads from a connection at once; the rest waits until other
    # connections had their turn. Requests that are reset while they wait cost almost nothing and are not forwarded.
    # With 8, 16 and 32, CPU time per request is that without a limit; with 4 it is a tenth more.
    "http.max_requests_per_io_cycle": 16,
}

# istioctl accepts a proxy only if the node metadata contains an Istio version; this is the version that weft follows.
ISTIO_VERSION = "1.30.3"
# Envoy warns if no limit is set. No healthy pod reaches this number of connections.
_MOST_CONNECTIONS = 50_000
_OF_HEAP = 0.9  # share of a container's memory; the rest is for stacks, sockets and kernel buffers
_TYPES = "type.googleapis.com"


class BootstrapNode(msgspec.Struct, frozen=True, kw_only=True):
    """What the proxy states about itself to the control plane: its node id, locality and metadata, with Istio's
    metadata keys. `name`, `namespace` and `addresses`: those of the pod. `kind`: sidecar or router, the first part of
    the node id. `locality`: REGION/ZONE/SUBZONE. `metadata`: further metadata, which overrides that of the other
    fields."""

    name: str
    namespace: str
    addresses: tuple[str, ...]
    workload: str = ""
    service_account: str = "default"
    labels: Mapping[str, str] = {}
    kind: str = "sidecar"
    dns_domain: str = ""
    cluster_id: str = "Kubernetes"
    mesh_id: str = "cluster.local"
    containers: tuple[str, ...] = ()
    locality: str = ""  # REGION/ZONE/SUBZONE
    # Further metadata; overrides the metadata derived from the fields above.
    metadata: Mapping[str, Any] = {}

    @property
    def id(self) -> str:
        domain = self.dns_domain or f"{self.namespace}.svc.cluster.local"
        return f"{self.kind}~{self.addresses[0]}~{self.name}.{self.namespace}~{domain}"


class Unix(msgspec.Struct, frozen=True):
    """A server on a Unix socket, which needs no network."""

    path: str


class Tcp(msgspec.Struct, frozen=True):
    address: str
    port: int


class DnsAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A control plane at a DNS name. With `tls`, the proxy presents its workload certificate, and accepts only a
    server certificate for `host`."""

    host: str
    port: int
    tls: bool = True


class Bootstrap(msgspec.Struct, frozen=True, kw_only=True):
    node: BootstrapNode
    xds: Unix | Tcp | DnsAddress
    # The SDS server for the workload's certificate. None: Envoy rejects every resource that refers to the certificate.
    sds: Unix | None = None
    admin_port: int = ADMIN_PORT
    readiness_port: int = READINESS_PORT
    prometheus_port: int = PROMETHEUS_PORT
    # The port for kubelet's probes of the application and for Prometheus; 0: no such port.
    status_port: int = 0
    probes: tuple[AppProbe, ...] = ()
    # DNS resolvers of the proxy; without any, the proxy uses those of the pod.
    resolvers: tuple[Tcp, ...] = ()
    # The memory limit of the proxy's container in bytes: near it, the proxy rejects requests so that it is not killed.
    # 0: no limit.
    memory: int = 0
    # Whether the pod has IPv6: readiness and metrics are then served on IPv4 and IPv6.
    ipv6: bool = False


def render(bootstrap: Bootstrap) -> str:
    return json.dumps(_document(bootstrap), separators=(",", ":"))


def node_document(node: BootstrapNode) -> dict[str, Any]:
    """Return the node as JSON, in the form that every xDS request contains."""
    workload = node.workload or node.name
    metadata: dict[str, Any] = {
        "NAME": node.name,
        "NAMESPACE": node.namespace,
        "WORKLOAD_NAME": workload,
        "SERVICE_ACCOUNT": node.service_account,
        "LABELS": dict(node.labels),
        "CLUSTER_ID": node.cluster_id,
        "MESH_ID": node.mesh_id,
        "INSTANCE_IPS": ",".join(node.addresses),
        "APP_CONTAINERS": ",".join(node.containers),
        "INTERCEPTION_MODE": "REDIRECT",
        "ISTIO_VERSION": ISTIO_VERSION,
        **node.metadata,
    }
    return {
        "id": node.id,
        "cluster": f"{workload}.{node.namespace}",
        "metadata": {key: value for key, value in metadata.items() if value not in ("", {})},
        **({"locality": _locality(node.locality)} if node.locality else {}),
    }


def _locality(locality: str) -> dict[str, str]:
    parts = zip(("region", "zone", "sub_zone"), locality.split("/", 2), strict=False)
    return {name: part for name, part in parts if part}


def _resolver(resolvers: tuple[Tcp, ...]) -> dict[str, Any]:
    return {
        "name": "envoy.network.dns_resolver.cares",
        "typed_config": {
            "@type": f"{_TYPES}/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
            "resolvers": [_socket(each.address, each.port) for each in resolvers],
            "dns_resolver_options": {"no_default_search_domain": True},
        },
    }


def _document(bootstrap: Bootstrap) -> dict[str, Any]:
    ads = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}
    return {
        "node": node_document(bootstrap.node),
        "admin": {"address": _socket("127.0.0.1", bootstrap.admin_port)},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": True,
                "grpc_services": [
                    {
                        "envoy_grpc": {
                            "cluster_name": XDS_CLUSTER,
                            # Envoy's default may wait half a minute before it reconnects to the control plane.
                            "retry_policy": {"retry_back_off": {"base_interval": "0.1s", "max_interval": "1s"}},
                        }
                    }
                ],
            },
            "lds_config": ads,
            "cds_config": ads,
        },
        "static_resources": {
            "clusters": [
                _grpc_cluster(XDS_CLUSTER, bootstrap.xds),
                *([] if bootstrap.sds is None else [_grpc_cluster(SDS_CLUSTER, bootstrap.sds)]),
                _admin_cluster(bootstrap.admin_port),
                *probes.clusters(bootstrap.probes, bootstrap.node.addresses[0]),
            ],
            "listeners": [
                _own_listener(bootstrap, bootstrap.readiness_port, "/healthz/ready", "/ready"),
                _own_listener(bootstrap, bootstrap.prometheus_port, "/stats/prometheus", "/stats/prometheus"),
                *([_status_listener(bootstrap)] if bootstrap.status_port else []),
            ],
        },
        # Envoy merges histograms on each request for stats, and the next response contains them: the live view's times
        # are one scrape old instead of five seconds. A flush every second would show the same, but used 1.6 ms of CPU
        # per second in an idle proxy with 300 clusters, in addition to 2.3 ms; this setting costs nothing while no
        # stats are requested.
        "stats_flush_on_admin": True,
        **({"typed_dns_resolver_config": _resolver(bootstrap.resolvers)} if bootstrap.resolvers else {}),
        "stats_config": _stats(),
        "layered_runtime": {
            "layers": [
                {
                    "name": "weft",
                    "static_layer": RUNTIME,
                },
                {"name": "admin", "admin_layer": {}},
            ]
        },
        "overload_manager": _overload(bootstrap.memory),
    }


def _overload(memory: int) -> dict[str, Any]:
    connections = _monitor(
        "global_downstream_max_connections",
        "downstream_connections.v3.DownstreamConnectionsConfig",
        {"max_active_downstream_connections": _MOST_CONNECTIONS},
    )
    if not memory:
        return {"resource_monitors": [connections]}
    limit = int(memory * _OF_HEAP)
    heap = _monitor("fixed_heap", "fixed_heap.v3.FixedHeapConfig", {"max_heap_size_bytes": limit})
    # Envoy's recommendation for edge proxies: first release unused heap memory, then reject new requests. Otherwise the
    # kernel would kill the proxy with all its requests in flight.
    actions = {"shrink_heap": 0.95, "stop_accepting_requests": 0.98}
    return {
        "refresh_interval": "0.25s",
        "resource_monitors": [connections, heap],
        "actions": [
            {
                "name": f"envoy.overload_actions.{name}",
                "triggers": [{"name": heap["name"], "threshold": {"value": share}}],
            }
            for name, share in actions.items()
        ],
    }


def _monitor(name: str, type_: str, config: dict[str, Any]) -> dict[str, Any]:
    typed = {"@type": f"{_TYPES}/envoy.extensions.resource_monitors.{type_}", **config}
    return {"name": f"envoy.resource_monitors.{name}", "typed_config": typed}


def _socket(address: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": address, "port_value": port}}


def _static_cluster(name: str, address: dict[str, Any]) -> dict[str, Any]:
    endpoint = {"lb_endpoints": [{"endpoint": {"address": address}}]}
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [endpoint]},
    }


def _grpc_cluster(name: str, server: Unix | Tcp | DnsAddress) -> dict[str, Any]:
    address = _address(server)
    protocol = {
        "@type": f"{_TYPES}/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    cluster = _static_cluster(name, address)
    cluster["typed_extension_protocol_options"] = {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": protocol}
    if isinstance(server, DnsAddress):
        cluster["type"] = "STRICT_DNS"
        if server.tls:
            cluster["transport_socket"] = _own_tls(server.host)
    if not isinstance(server, Unix):
        # TCP keepalive detects a control plane that disappeared without closing the connection.
        cluster["upstream_connection_options"] = {
            "tcp_keepalive": {"keepalive_time": 30, "keepalive_interval": 10, "keepalive_probes": 3}
        }
    return cluster


def _address(server: Unix | Tcp | DnsAddress) -> dict[str, Any]:
    match server:
        case Unix(path=path):
            return {"pipe": {"path": path}}
        case Tcp(address=address, port=port):
            return _socket(address, port)
        case DnsAddress(host=host, port=port):
            return _socket(host, port)


def _own_tls(host: str) -> dict[str, Any]:
    """Return the TLS transport socket for a server at `host`, with the certificate and roots that the node agent
    sends by SDS."""
    agent = {
        "api_config_source": {
            "api_type": "GRPC",
            "transport_api_version": "V3",
            "set_node_on_first_message_only": True,
            "grpc_services": [{"envoy_grpc": {"cluster_name": SDS_CLUSTER}}],
        },
        "resource_api_version": "V3",
        "initial_fetch_timeout": "0s",
    }
    named = {"san_type": "DNS", "matcher": {"exact": host}}
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": f"{_TYPES}/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "sni": host,
            "common_tls_context": {
                "alpn_protocols": ["h2"],
                "tls_certificate_sds_secret_configs": [{"name": CERTIFICATE, "sds_config": agent}],
                "combined_validation_context": {
                    "default_validation_context": {"match_typed_subject_alt_names": [named]},
                    "validation_context_sds_secret_config": {"name": ROOTS, "sds_config": agent},
                },
            },
        },
    }


def _admin_cluster(port: int) -> dict[str, Any]:
    return _static_cluster(ADMIN_CLUSTER, _socket("127.0.0.1", port))


def _own_listener(bootstrap: Bootstrap, port: int, path: str, admin_path: str) -> dict[str, Any]:
    """Return a listener on `port` that exposes one path of the admin API, and no other, to clients outside the pod: a
    request for `path` gets the response of `admin_path`."""
    name = f"{path.strip('/').replace('/', '-')}-{port}"
    return _listener(bootstrap, port, name, [_admin_route(path, admin_path)], [])


def _status_listener(bootstrap: Bootstrap) -> dict[str, Any]:
    routes = [_admin_route("/stats/prometheus", "/stats/prometheus"), _admin_route("/healthz/ready", "/ready")]
    routes += probes.routes(bootstrap.probes)
    return _listener(bootstrap, bootstrap.status_port, "status", routes, probes.filters(bootstrap.probes))


def _admin_route(path: str, admin_path: str) -> dict[str, Any]:
    return {"match": {"path": path}, "route": {"cluster": ADMIN_CLUSTER, "prefix_rewrite": admin_path}}


def _listener(
    bootstrap: Bootstrap, port: int, name: str, routes: list[dict[str, Any]], filters: list[dict[str, Any]]
) -> dict[str, Any]:
    manager = {
        "@type": f"{_TYPES}/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": ADMIN_CLUSTER,
        "generate_request_id": False,
        "http_filters": [
            *filters,
            {
                "name": "envoy.filters.http.router",
                "typed_config": {
                    "@type": f"{_TYPES}/envoy.extensions.filters.http.router.v3.Router",
                    "suppress_envoy_headers": True,
                },
            },
        ],
        "route_config": {"virtual_hosts": [{"name": ADMIN_CLUSTER, "domains": ["*"], "routes": routes}]},
    }
    address = _socket("::" if bootstrap.ipv6 else "0.0.0.0", port)
    if bootstrap.ipv6:
        address["socket_address"]["ipv4_compat"] = True
    return {
        "name": name,
        "address": address,
        "bypass_overload_manager": True,
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }


def _stats() -> dict[str, Any]:
    """Return the stats configuration. It keeps only stats that weft or an operator uses: each further counter needs
    memory in every pod, for every cluster."""
    kept = [
        # Requests, connections and their times per upstream: used by the live view and in most investigations.
        r"^cluster\..*\.upstream_(rq|cx)_[^.]*$",
        r"^cluster\..*\.(membership_(healthy|total)|outlier_detection\.ejections_(active|enforced_total))$",
        r"^cluster\..*\.circuit_breakers\.default\.(cx|rq|rq_pending|rq_retry)_open$",
        r"^cluster\..*\.ssl\.(handshake|connection_error|fail_verify.*)$",
        r"^listener\..*\.(downstream_(cx|pre_cx|global|listener_filter)_[^.]*|no_filter_chain_match)$",
        r"^listener\..*\.ssl\.(handshake|connection_error|no_certificate|fail_verify.*)$",
        r"^http\..*\.(downstream_(rq|cx)_(total|active|time|[1-5]xx|[a-z_]*timeout|rx_reset|protocol_error)|no_route)$",
        r"^http\..*\.(fault|rbac|jwt_authn|ext_authz|local_rate_limit)\..*$",
        r"^tcp\..*\.(downstream_cx_(total|no_route)|idle_timeout)$",
        r"^vhost\..*\.route\..*$",  # routes with a statPrefix in their match
        r"^.*rbac\.(istio_[a-z_]+\.)?(allowed|denied|shadow_allowed|shadow_denied)$",
    ]
    prefixes = ["cluster_manager.", "listener_manager.", "control_plane.", "server.", "istio", "runtime.load_", "weft."]
    prefixes += ["http_inspector.", "overload.envoy.overload_actions."]
    patterns = [{"prefix": prefix} for prefix in prefixes] + [{"safe_regex": {"regex": regex}} for regex in kept]
    cluster = r"^cluster\.((.+?)\.)(?=(?:upstream_|membership_|outlier_|circuit_|ssl\.|external\.|internal\.))"
    listener = r"^listener\.((.+?)\.)(?=(?:downstream_|no_filter|ssl\.))"
    manager = r"^http\.((.+?)\.)(?=(?:downstream_|no_route|fault|rbac))"
    return {
        # Envoy's default tag patterns cut a cluster's name at its first dot, and Istio's cluster names contain many
        # dots.
        "use_all_default_tags": False,
        "stats_tags": [
            {"tag_name": "cluster_name", "regex": cluster},
            {"tag_name": "listener_address", "regex": listener},
            {"tag_name": "http_conn_manager_prefix", "regex": manager},
            {"tag_name": "response_code", "regex": r"_rq(_(\d{3}))$"},
            {"tag_name": "response_code_class", "regex": r"_rq(_(\dxx))$"},
        ],
        "stats_matcher": {"inclusion_list": {"patterns": patterns}},
    }
