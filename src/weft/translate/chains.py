"""The terminal filters of filter chains: an HTTP connection manager with routes, or a TCP proxy to a cluster."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum

from envoy.config.core.v3.protocol_pb2 import HttpProtocolOptions
from envoy.config.listener.v3.listener_components_pb2 import Filter, FilterChain, ListenerFilter
from envoy.config.route.v3.route_components_pb2 import Route
from envoy.config.route.v3.route_components_pb2 import VirtualHost as EnvoyVirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.listener.http_inspector.v3.http_inspector_pb2 import HttpInspector
from envoy.extensions.filters.listener.original_dst.v3.original_dst_pb2 import OriginalDst
from envoy.extensions.filters.listener.tls_inspector.v3.tls_inspector_pb2 import TlsInspector
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
    HttpFilter,
)
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy

from weft.model.destination_rule import ConnectionPool, Tunnel
from weft.model.settings import PathNormalization, Settings, Underscores
from weft.translate import names, retries
from weft.translate.access_log import access_logs, connection_logs, own_answers
from weft.translate.actions import wait
from weft.translate.connects import with_connects
from weft.translate.filters import inbound_filters, outbound_filters
from weft.translate.matches import route_match
from weft.translate.protos import duration, from_control_plane, packed
from weft.translate.resilience import (
    RESETS_OF_APPLICATION,
    RESETS_OF_PROXIES,
    RESETS_OUTSIDE,
    end_alone,
    limit_resets,
    limit_windows,
)
from weft.translate.upgrades import allow_upgrades, receive_upgrades, send_upgrades

# Protocols that Envoy's HTTP inspector detects. HTTP/1.0 is included, because old load generators support nothing else.
DETECTED_HTTP = ("http/1.0", "http/1.1", "h2c")


# Limits for clients outside the mesh, as Envoy's authors recommend for an edge. Each client has its own connection, so
# a client that reaches a limit only delays its own requests.
_STREAMS_OUTSIDE = 100
_WINDOWS_OUTSIDE = (64 << 10, 1 << 20)  # bytes: of a stream, of a connection
_QUIET_OUTSIDE = timedelta(minutes=5)
_IDLE_OUTSIDE = timedelta(hours=1)
_HEADERS_OUTSIDE = timedelta(seconds=10)
_UNDERSCORES = {
    Underscores.ALLOW: HttpProtocolOptions.ALLOW,
    Underscores.DROP: HttpProtocolOptions.DROP_HEADER,
    Underscores.REJECT: HttpProtocolOptions.REJECT_REQUEST,
}


class End(Enum):
    """The kind of client on the downstream side of a connection manager."""

    OUTBOUND = "the workload's own application"
    INBOUND = "another proxy of the mesh, or any other client of a workload"
    GATEWAY = "any client outside the mesh"


def http_by_route(prefix: str, route_name: str, settings: Settings) -> Filter:
    """Return the connection manager of an outbound listener; the control plane sends its routes (RDS). `prefix`:
    Envoy's stat prefix. `route_name`: the name of the route configuration."""
    return _routed(manager(prefix, settings, End.OUTBOUND), route_name, ())


def http_at_gateway(
    prefix: str,
    route_name: str,
    settings: Settings,
    guards: tuple[HttpFilter, ...],
    noted: frozenset[str],
    *,
    unverified: bool = False,
    from_proxies: bool = False,
    grpc_web: bool = False,
) -> Filter:
    """Return the connection manager of a gateway: its guards, then the router; the control plane sends its routes (RDS)
    as the route configuration `route_name`. `from_proxies`: only proxies of the mesh can connect. `prefix`, `noted`: as
    for `manager`. `grpc_web`: convert gRPC-Web to gRPC on all routes. `unverified`: client certificates are not
    verified. `x-forwarded-client-cert` then has the certificate itself, which a backend can verify, and not the names
    in it, which a backend would trust."""
    result = manager(prefix, settings, End.GATEWAY, noted)
    if unverified:
        result.set_current_client_cert_details.Clear()
        result.set_current_client_cert_details.cert = True
    limit_resets(result.http2_protocol_options, RESETS_OF_PROXIES if from_proxies else RESETS_OUTSIDE)
    return _routed(result, route_name, guards, grpc_web=grpc_web)


def http_to_workload(
    prefix: str,
    cluster: str,
    host_name: str,
    settings: Settings,
    guards: tuple[HttpFilter, ...] = (),
    *,
    noted: frozenset[str] = frozenset(),
    certified: bool = False,
    from_proxies: bool = False,
    upgrades: bool = False,
    grpc_web: bool = False,
) -> Filter:
    """Return the connection manager of an inbound listener: its guards, then one inline route to the workload
    (`cluster`). `host_name`: the name of its virtual host. `prefix`, `noted`: as for `manager`. `grpc_web`: convert
    gRPC-Web to gRPC.

    A request on a connection that the workload has just closed is retried if its method is idempotent (`retries.py`).
    If the caller has a certificate (`certified`), its identity is appended to `x-forwarded-client-cert`; for any other
    caller that header is removed. Outbound proxies remove the header of their applications, too.
    `from_proxies`: other proxies use this chain, and their connections carry the requests of many callers.
    `upgrades`: other proxies send HTTP/1.1 upgrades over HTTP/2 (`upgrades.py`).
    """
    result = manager(prefix, settings, End.INBOUND, noted)
    if certified:
        result.forward_client_cert_details = HttpConnectionManager.APPEND_FORWARD
        details = result.set_current_client_cert_details
        details.subject.value, details.uri, details.dns = True, True, True
    route = Route(name="default", match=route_match(None))
    route.route.cluster = cluster
    wait(route.route, None)
    route.route.retry_policy.CopyFrom(retries.to_workload())
    routes = retries.with_replays(route)
    routes = routes if guards else with_connects(routes)
    if from_proxies:
        limit_resets(result.http2_protocol_options, RESETS_OF_PROXIES)
    if upgrades:
        routes.insert(0, receive_upgrades(result, route))
    result.http_filters.extend([*guards, *inbound_filters(grpc_web=grpc_web)])
    host = EnvoyVirtualHost(name=host_name, domains=["*"], routes=routes)
    result.route_config.CopyFrom(RouteConfiguration(name=cluster, virtual_hosts=[host]))
    result.route_config.validate_clusters.value = False
    # An HTTP/1.0 request needs no Host header. Outbound, such a request cannot be routed; here every request is for the
    # workload, so any host will do.
    result.http_protocol_options.default_host_for_http_10 = "localhost"
    return Filter(name="envoy.filters.network.http_connection_manager", typed_config=packed(result))


def manager(prefix: str, settings: Settings, end: End, noted: frozenset[str] = frozenset()) -> HttpConnectionManager:
    """Return a connection manager with the settings that all connection managers share, and those for its kind of
    client (`end`). `prefix`: Envoy's stat prefix. `noted`: the metadata prefixes under which its guards write their
    decisions; the access log prints them."""
    result = HttpConnectionManager(
        stat_prefix=prefix,
        access_log=access_logs(settings, noted),
        proxy_100_continue=True,
        # The `server` header of the application is kept; only Envoy's own responses have `envoy`.
        server_header_transformation=HttpConnectionManager.APPEND_IF_ABSENT,
    )
    _normalize_paths(result, settings.path_normalization)
    allow_upgrades(result)
    result.http2_protocol_options.allow_connect = True  # an upgrade crosses HTTP/2 as an extended CONNECT
    result.http_protocol_options.accept_http_10 = True
    result.http_protocol_options.enable_trailers = True
    if end is End.GATEWAY:
        _distrust(result)
        # A byte now and then keeps a stream from being idle, so a limit for the whole request is needed, too. Envoy
        # stops this timer when the response begins: streams in both directions and upgrades may last longer.
        result.request_timeout.CopyFrom(duration(settings.request_timeout))
        # An application that reads `x_user` as `x-user` would trust `x_user` like the header that the mesh has checked.
        result.common_http_protocol_options.headers_with_underscores_action = _UNDERSCORES[settings.underscores]
        result.xff_num_trusted_hops = settings.trusted_proxies
        return result
    result.use_remote_address.value = False  # neither of two proxies in the mesh is at the edge
    result.stream_idle_timeout.CopyFrom(duration(timedelta(0)))  # the application limits idle streams
    limit_windows(result.http2_protocol_options)
    if end is End.OUTBOUND:
        limit_resets(result.http2_protocol_options, RESETS_OF_APPLICATION)
    else:
        end_alone(result.http2_protocol_options)  # one connection carries many callers' requests
    return result


def _distrust(manager: HttpConnectionManager) -> None:
    """Add the settings for clients outside the mesh. The client address is that of the connection, not that in a
    header. Timeouts and limits bound connections, streams and memory. `x-forwarded-client-cert` is replaced by the
    certificate that the client presents to this gateway."""
    manager.use_remote_address.value = True
    manager.forward_client_cert_details = HttpConnectionManager.SANITIZE_SET
    details = manager.set_current_client_cert_details
    details.subject.value, details.cert, details.uri, details.dns = True, True, True, True
    manager.stream_idle_timeout.CopyFrom(duration(_QUIET_OUTSIDE))
    manager.request_headers_timeout.CopyFrom(duration(_HEADERS_OUTSIDE))
    manager.common_http_protocol_options.idle_timeout.CopyFrom(duration(_IDLE_OUTSIDE))
    manager.http2_protocol_options.max_concurrent_streams.value = _STREAMS_OUTSIDE
    limit_windows(manager.http2_protocol_options, *_WINDOWS_OUTSIDE)


def _routed(
    manager: HttpConnectionManager, route_name: str, guards: tuple[HttpFilter, ...], *, grpc_web: bool = False
) -> Filter:
    manager.http_filters.extend([*guards, *outbound_filters(grpc_web=grpc_web)])
    send_upgrades(manager)
    manager.access_log.append(own_answers())
    manager.rds.route_config_name = route_name
    manager.rds.config_source.CopyFrom(from_control_plane())
    return Filter(name="envoy.filters.network.http_connection_manager", typed_config=packed(manager))


def bytes_to(
    clusters: tuple[tuple[str, int], ...],
    settings: Settings,
    pool: ConnectionPool | None = None,
    *,
    noted: frozenset[str] = frozenset(),
    hash_source: bool = False,
    tunnel: Tunnel | None = None,
) -> Filter:
    """Return a TCP proxy filter to one cluster, or to several clusters by weight. `clusters`: names of clusters with
    their weights. `noted`: as for `manager`. `pool`: sets the idle timeout and the longest duration of connections;
    None for the defaults. `hash_source`: choose the endpoint by a hash of the caller's address. `tunnel`: send the
    bytes inside an HTTP request, in the HTTP version that the cluster uses; None for no tunnel."""
    proxy = TcpProxy(stat_prefix=clusters[0][0], access_log=connection_logs(settings, noted))
    if len(clusters) == 1:
        proxy.cluster = clusters[0][0]
    else:
        for name, weight in clusters:
            proxy.weighted_clusters.clusters.add(name=name, weight=weight)
    if pool is not None and pool.tcp_idle_timeout is not None:
        proxy.idle_timeout.CopyFrom(duration(pool.tcp_idle_timeout))
    if pool is not None and pool.max_connection_duration:
        proxy.max_downstream_connection_duration.CopyFrom(duration(pool.max_connection_duration))
    if hash_source:
        proxy.hash_policy.add().source_ip.SetInParent()
    if tunnel is not None:
        host = f"[{tunnel.host}]" if ":" in tunnel.host else tunnel.host
        proxy.tunneling_config.hostname = f"{host}:{tunnel.port}"
        proxy.tunneling_config.use_post = tunnel.by_post
    return Filter(name="envoy.filters.network.tcp_proxy", typed_config=packed(proxy))


def chain(name: str, *filters: Filter) -> FilterChain:
    return FilterChain(name=name, filters=filters)


def going_round(name: str, port: int, settings: Settings) -> FilterChain:
    """Return a filter chain that closes connections to the listener's own port (`port`): a listener that forwards to
    the original destination would send such connections to itself for ever. `name`: the name of the listener; the chain
    is called `NAME-blackhole`."""
    result = chain(f"{name}-blackhole", bytes_to(((names.BLACK_HOLE, 1),), settings))
    result.filter_chain_match.destination_port.value = port
    return result


def http_inspector() -> ListenerFilter:
    return ListenerFilter(name="envoy.filters.listener.http_inspector", typed_config=packed(HttpInspector()))


def tls_inspector() -> ListenerFilter:
    return ListenerFilter(name="envoy.filters.listener.tls_inspector", typed_config=packed(TlsInspector()))


def original_destination() -> ListenerFilter:
    return ListenerFilter(name="envoy.filters.listener.original_dst", typed_config=packed(OriginalDst()))


def _normalize_paths(manager: HttpConnectionManager, wanted: PathNormalization) -> None:
    """Configure the path normalization `wanted`, a setting of the mesh. Outbound and inbound proxies normalize alike,
    so that the caller's routes see the same path as the workload's policies; the application gets the normalized path.
    Merging and decoding slashes is not the default, because paths that differ in slashes are different resources to
    some applications. Policies do not depend on the setting: `rbac_matchers` matches all these spellings."""
    manager.normalize_path.value = wanted is not PathNormalization.NONE
    if wanted in (PathNormalization.MERGE_SLASHES, PathNormalization.DECODE_AND_MERGE_SLASHES):
        manager.merge_slashes = True
    if wanted is PathNormalization.DECODE_AND_MERGE_SLASHES:
        manager.path_with_escaped_slashes_action = HttpConnectionManager.UNESCAPE_AND_FORWARD
