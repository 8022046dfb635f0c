"""Translates services to clusters: one cluster per port of a service and per subset of its DestinationRule, one per
inbound port, and three that need no service. Between two proxies of the mesh, HTTP is sent as HTTP/2, which costs a
third less CPU than HTTP/1.1. To its application, the receiving proxy sends the protocol that the port declares."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum

import msgspec
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.address_pb2 import BindConfig
from envoy.extensions.clusters.common.dns.v3.dns_pb2 import DnsLookupFamily
from envoy.extensions.clusters.dns.v3.dns_cluster_pb2 import DnsCluster
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions
from google.protobuf.duration_pb2 import Duration

from weft.model.destination_rule import ClientTlsMode, ConnectionPool, Subset, TrafficPolicy
from weft.model.endpoint import Endpoint
from weft.model.group import ProxyKind
from weft.model.inbound_port import InboundPort
from weft.model.locality import fails_over, weighs_places, without_rule
from weft.model.service import Protocol, Resolution, ServicePort
from weft.model.settings import Settings
from weft.translate import names, policy, tls
from weft.translate.announcement import announce_caller
from weft.translate.built import Built, build
from weft.translate.dynamic_dns import resolve_by_request
from weft.translate.endpoints import assignment, near, subset_endpoints
from weft.translate.origination import is_foreign, name_by_request, originate, secrets
from weft.translate.protos import duration, from_control_plane, packed, socket_address
from weft.translate.provenance import keys, of_objects
from weft.translate.resilience import GATEWAY_WINDOW, WINDOW, end_alone, limit_windows, notice_silence, queue_resets
from weft.translate.retries import IDLE_TO_OUTSIDE, IDLE_TO_WORKLOAD, allow_replays
from weft.translate.view import ServiceView

_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_NEVER = Duration(seconds=9223372035)  # Istio's value: the largest that fits into Envoy's milliseconds
_DNS_REFRESH = Duration(seconds=60)
EDGE_BUFFER = 32 << 10  # bytes per connection, upstream and downstream; what Envoy's authors recommend for an edge


class UpstreamHttp(Enum):
    """The HTTP version that a cluster uses towards its upstream."""

    HTTP1 = 1
    HTTP2 = 2
    AS_CALLED = 3  # the version of the downstream request


def outbound(view: ServiceView, port: ServicePort, settings: Settings) -> tuple[Built, ...]:
    """Return the cluster of a service port and one for each subset, with the SDS secrets that they name. A call to a
    headless service goes to the pod whose address the caller chose. A call that the route of another host sends to the
    service has no such address: for these calls there is a second set of clusters, as if the service were not headless.
    The protocol is the one that the service declares for the port, even if a Sidecar declares another for its
    workloads."""
    if view.service is None:
        return ()
    port = view.service.port(port.number) or port
    subsets: tuple[Subset | None, ...] = (None, *(view.rule.subsets if view.rule else ()))
    views = (view, together(view)) if view.led_to else (view,)
    return tuple(cluster for each in views for subset in subsets for cluster in _outbound(each, port, subset, settings))


def together(view: ServiceView) -> ServiceView:
    """Return the view of a headless service for routes of other hosts: as if it were not headless, so that the proxy
    chooses among all its pods."""
    service = view.service
    return msgspec.structs.replace(view, service=msgspec.structs.replace(service, headless=False)) if service else view


def inbound(port: InboundPort, settings: Settings) -> tuple[Built, ...]:
    """Return the clusters from a proxy to its own workload, for one port. Their connections come from 127.0.0.6, so
    that interception does not redirect them again. If services declare an HTTP version for the port, requests are sent
    in that version. If services declare none, requests keep the HTTP version of the caller. If services of both kinds
    share the port, there are two clusters."""
    cluster = _inbound(port, settings, names.inbound_cluster(port.number), inbound_upstream(port))
    if not port.carried.both_ways:
        return (cluster,)
    beside = names.inbound_cluster(port.number, as_called=True)
    return (cluster, _inbound(port, settings, beside, UpstreamHttp.AS_CALLED))


def inbound_upstream(port: InboundPort) -> UpstreamHttp | None:
    """Return the HTTP version for requests to the workload on this port; None if the port is not HTTP."""
    spoken, pool = port.carried.spoken, port.connection_pool
    if spoken is None:
        return UpstreamHttp.AS_CALLED if port.carried.as_called else None
    if pool is not None and pool.use_client_protocol:
        return UpstreamHttp.AS_CALLED
    return UpstreamHttp.HTTP2 if spoken.is_http2 else UpstreamHttp.HTTP1


def _inbound(port: InboundPort, settings: Settings, name: str, spoken: UpstreamHttp | None) -> Built:
    pool = port.connection_pool
    cluster = Cluster(name=name, connect_timeout=duration(settings.connect_timeout))
    _locate_inbound(cluster, port)
    policy.limit(cluster, pool, policy.effective(port.rule, port.service_port).retry_budget)
    allow_replays(cluster)
    _speak(cluster, spoken, pool, _idle(IDLE_TO_WORKLOAD))
    sources = keys(*(service.origin for service in port.services), *(port.rule.origins if port.rule else ()))
    cluster.metadata.CopyFrom(of_objects(sources))
    return build(name, cluster, sources)


def fixed(settings: Settings) -> tuple[Built, ...]:
    """Return the three clusters that need no service: to the original destination, to no endpoint (BlackHoleCluster),
    and to the workload on a port that no service names."""
    passthrough = _original_destination(names.PASSTHROUGH, settings, IDLE_TO_OUTSIDE)
    received = _original_destination(names.INBOUND_PASSTHROUGH, settings, IDLE_TO_WORKLOAD)
    received.upstream_bind_config.CopyFrom(_FROM_LOOPBACK)
    allow_replays(received)
    return (build(passthrough.name, passthrough), *nowhere(settings), build(received.name, received))


def nowhere(settings: Settings) -> tuple[Built, ...]:
    cluster = Cluster(name=names.BLACK_HOLE, type=Cluster.STATIC, connect_timeout=duration(settings.connect_timeout))
    return (build(cluster.name, cluster),)


def upstream(view: ServiceView, port: ServicePort, chosen: TrafficPolicy) -> UpstreamHttp | None:
    """Return the HTTP version for requests to a service port with the effective policy `chosen`; None if the port is
    not HTTP."""
    pool = chosen.connection_pool
    if port.protocol is Protocol.UNDECLARED:
        # The HTTP version of a gateway's client was negotiated with the gateway, so the upstream may not support it.
        as_called = view.caller.kind is not ProxyKind.GATEWAY or (pool is not None and pool.use_client_protocol)
        return UpstreamHttp.AS_CALLED if as_called else UpstreamHttp.HTTP1
    if not port.protocol.is_http:
        return None
    if pool is not None and pool.use_client_protocol:
        return UpstreamHttp.AS_CALLED
    if port.protocol.is_http2:
        return UpstreamHttp.HTTP2
    wish = pool.h2_upgrade if pool else ""
    if wish == "UPGRADE":
        return UpstreamHttp.HTTP2
    return UpstreamHttp.HTTP2 if _meets_proxies(view, port, chosen) and wish != "DO_NOT_UPGRADE" else UpstreamHttp.HTTP1


def _meets_proxies(view: ServiceView, port: ServicePort, chosen: TrafficPolicy) -> bool:
    """Whether all endpoints of a port have a proxy that handles the port's HTTP. `chosen`: the effective traffic
    policy. Always False for a headless service that the caller's proxy calls by address, because the address may be
    that of any workload. Also False if a DestinationRule configures TLS: the application terminates that TLS, and its
    proxy cannot read the HTTP inside."""
    by_address = view.service is None or (view.service.headless and view.caller.kind is not ProxyKind.GATEWAY)
    return port.number in view.meshed and not by_address and not is_foreign(chosen.tls)


def _outbound(view: ServiceView, port: ServicePort, subset: Subset | None, settings: Settings) -> tuple[Built, ...]:
    assert view.service is not None  # noqa: S101 (the caller has looked)
    by_proxy = view.led_to and not view.service.headless
    name = names.outbound_cluster(view.host, port.number, subset.name if subset else "", chosen=by_proxy)
    chosen = policy.effective(view.rule, port.number, subset)
    cluster = Cluster(name=name, connect_timeout=duration(settings.connect_timeout))
    if view.caller.kind is ProxyKind.GATEWAY:
        cluster.per_connection_buffer_limit_bytes.value = EDGE_BUFFER
    policy.balance(cluster, chosen.load_balancer)
    locality = without_rule(view.service, settings.locality)
    if weighs_places(chosen, locality):
        cluster.common_lb_config.locality_weighted_lb_config.SetInParent()
    _locate(cluster, view, port, subset, chosen, settings)
    policy.limit(cluster, chosen.connection_pool, chosen.retry_budget)
    policy.eject(cluster, chosen.outlier_detection, fails_over=fails_over(chosen, locality, view.caller.whereabouts))
    spoken = upstream(view, port, chosen)
    if spoken in (UpstreamHttp.HTTP1, UpstreamHttp.AS_CALLED) and not policy.limits_retries(chosen):
        allow_replays(cluster)
    options = HttpProtocolOptions() if spoken is UpstreamHttp.HTTP2 else _idle(IDLE_TO_OUTSIDE)
    foreign = chosen.tls if is_foreign(chosen.tls) else None
    if foreign is not None:
        name_by_request(options, view.service, port, foreign)
    window = GATEWAY_WINDOW if view.caller.kind is ProxyKind.GATEWAY else WINDOW
    _speak(cluster, spoken, chosen.connection_pool, options, window, to_proxies=_meets_proxies(view, port, chosen))
    _secure(cluster, view, port, subset, chosen, settings)
    if chosen.proxy_protocol is not None:
        announce_caller(cluster, chosen.proxy_protocol)
    sources = keys(*view.service.origins, *(view.rule.origins if view.rule else ()))
    cluster.metadata.CopyFrom(of_objects(sources))
    secret_sources = (
        keys(*view.rule.origins) if view.rule else sources
    )  # only the rule: the service does not name the certificate files
    sds_secrets = secrets(name, foreign, secret_sources, view.credentials) if foreign is not None else ()
    return (build(name, cluster, sources), *sds_secrets)


def _locate(
    cluster: Cluster,
    view: ServiceView,
    port: ServicePort,
    subset: Subset | None,
    chosen: TrafficPolicy,
    settings: Settings,
) -> None:
    service = view.service
    assert service is not None  # noqa: S101 (the caller has looked)
    if policy.is_closed(chosen):
        cluster.type = Cluster.STATIC  # without endpoints
    elif policy.by_callers_address(service, chosen, view.caller.kind):
        cluster.type = Cluster.ORIGINAL_DST
        cluster.lb_policy = Cluster.CLUSTER_PROVIDED
        _unbalance(cluster)
        if service.resolution is Resolution.NONE and isinstance(port.target, int) and port.target:
            cluster.original_dst_lb_config.upstream_port_override.value = port.target
    elif service.resolution is Resolution.DYNAMIC_DNS:
        _unbalance(cluster)
        resolve_by_request(cluster, service.host)
    elif service.resolution is Resolution.STATIC and view.led_to:
        cluster.type = Cluster.STATIC
        _assign(cluster, _members(view, port, subset), view, chosen, settings)
    elif service.resolution is Resolution.STATIC:
        cluster.type = Cluster.EDS
        cluster.eds_cluster_config.eds_config.CopyFrom(from_control_plane())
    else:
        members = _members(view, port, subset)
        cluster.cluster_type.name = "envoy.clusters.dns"
        cluster.cluster_type.typed_config.CopyFrom(
            packed(
                DnsCluster(
                    # With all addresses, each would be an endpoint: those of an IP family that the pod lacks would fail
                    # their share of requests.
                    dns_lookup_family=DnsLookupFamily.V4_PREFERRED,
                    dns_refresh_rate=_DNS_REFRESH,
                    respect_dns_ttl=True,
                    # Envoy rejects a logical DNS cluster with no name or with several names.
                    all_addresses_in_single_endpoint=service.resolution is Resolution.DNS_ROUND_ROBIN
                    and len(members) == 1,
                )
            )
        )
        _assign(cluster, members, view, chosen, settings)


def _unbalance(cluster: Cluster) -> None:
    """Remove the settings of load balancing from a cluster that has no endpoints to choose from."""
    cluster.ClearField("common_lb_config")
    for unused in ("ring_hash_lb_config", "maglev_lb_config", "least_request_lb_config", "round_robin_lb_config"):
        cluster.ClearField(unused)


def _members(view: ServiceView, port: ServicePort, subset: Subset | None) -> tuple[Endpoint, ...]:
    return subset_endpoints(dict(view.endpoints).get(port.number, ()), subset)


def _assign(
    cluster: Cluster, members: tuple[Endpoint, ...], view: ServiceView, chosen: TrafficPolicy, settings: Settings
) -> None:
    """Put the endpoints (`members`) into the cluster itself, because EDS is not used for this cluster. The effective
    traffic policy (`chosen`) decides their order: endpoints near the caller may come first."""
    localities = near(chosen, members, view.caller.whereabouts, without_rule(view.service, settings.locality))
    cluster.load_assignment.CopyFrom(assignment(cluster.name, localities))


def _secure(
    cluster: Cluster,
    view: ServiceView,
    port: ServicePort,
    subset: Subset | None,
    chosen: TrafficPolicy,
    settings: Settings,
) -> None:
    """Configure the TLS of the cluster of a port and subset: as the effective traffic policy (`chosen`) declares; by
    default mutual TLS to every endpoint that accepts it."""
    service, written = view.service, chosen.tls
    assert service is not None  # noqa: S101 (the caller has looked)
    if written is None and (service.external or not settings.auto_mtls):
        return
    if written is not None and is_foreign(written):
        originate(cluster, service, port, written)
        return
    if written is not None and written.mode is not ClientTlsMode.ISTIO_MUTUAL:
        return
    socket = tls.upstream(
        (written.subject_alt_names if written else ())
        or service.subject_alt_names
        or tls.identities(service.namespace, view.accounts, settings),
        (written.server_name if written else "")
        or names.server_name(view.host, port.number, subset.name if subset else ""),
        _OFFERED[upstream(view, port, chosen)],
        settings,
    )
    if written is not None:
        cluster.transport_socket.CopyFrom(socket)
    elif not policy.by_callers_address(service, chosen, view.caller.kind):
        tls.automatic(cluster, socket)
    elif port.number in view.secured:  # called by address, so the endpoint is unknown: all must accept mutual TLS
        cluster.transport_socket.CopyFrom(socket)


def _locate_inbound(cluster: Cluster, port: InboundPort) -> None:
    address, _, number = port.default_endpoint.rpartition(":")
    if port.default_endpoint.startswith("unix:"):
        path = port.default_endpoint.removeprefix("unix:").removeprefix("//")
        _at_one_address(cluster, f"unix://{path}", 0)
    elif address and address.strip("[]") not in ("0.0.0.0", "::"):
        _at_one_address(cluster, address.strip("[]"), int(number))
    else:
        cluster.type = Cluster.ORIGINAL_DST
        cluster.lb_policy = Cluster.CLUSTER_PROVIDED
        # The only endpoint of this cluster is the pod itself: removing it while idle would save nothing.
        cluster.cleanup_interval.CopyFrom(_NEVER)
        cluster.upstream_bind_config.CopyFrom(_FROM_LOOPBACK)
        if number and int(number) != port.number:
            cluster.original_dst_lb_config.upstream_port_override.value = int(number)


def _at_one_address(cluster: Cluster, host: str, port: int) -> None:
    cluster.type = Cluster.STATIC
    cluster.load_assignment.cluster_name = cluster.name
    cluster.load_assignment.endpoints.add().lb_endpoints.add().endpoint.address.CopyFrom(socket_address(host, port))


def _speak(
    cluster: Cluster,
    spoken: UpstreamHttp | None,
    pool: ConnectionPool | None,
    options: HttpProtocolOptions,
    window: int = WINDOW,
    *,
    to_proxies: bool = False,
) -> None:
    if spoken is None:
        return
    if pool is not None:
        if pool.idle_timeout:
            options.common_http_protocol_options.idle_timeout.CopyFrom(duration(pool.idle_timeout))
        if pool.max_requests_per_connection:
            per_connection = options.common_http_protocol_options.max_requests_per_connection
            per_connection.value = pool.max_requests_per_connection
        if pool.max_connection_duration:
            lifetime = options.common_http_protocol_options.max_connection_duration
            lifetime.CopyFrom(duration(pool.max_connection_duration))
    match spoken:
        case UpstreamHttp.HTTP1:
            options.explicit_http_config.http_protocol_options.enable_trailers = True
        case UpstreamHttp.HTTP2:
            http2 = options.explicit_http_config.http2_protocol_options
        case UpstreamHttp.AS_CALLED:
            options.use_downstream_protocol_config.http_protocol_options.enable_trailers = True
            http2 = options.use_downstream_protocol_config.http2_protocol_options
    if spoken is not UpstreamHttp.HTTP1:
        http2.allow_connect = True  # a WebSocket crosses HTTP/2 as an extended CONNECT
        limit_windows(http2, window)
        end_alone(http2)
        if to_proxies:
            notice_silence(http2)
            queue_resets(http2)
        if pool is not None and pool.max_concurrent_streams:
            http2.max_concurrent_streams.value = pool.max_concurrent_streams
    cluster.typed_extension_protocol_options[_HTTP_OPTIONS].CopyFrom(packed(options))


def _original_destination(name: str, settings: Settings, idle: timedelta) -> Cluster:
    cluster = Cluster(
        name=name,
        type=Cluster.ORIGINAL_DST,
        lb_policy=Cluster.CLUSTER_PROVIDED,
        connect_timeout=duration(settings.connect_timeout),
    )
    policy.limit(cluster, None)
    options = _idle(idle)
    options.use_downstream_protocol_config.http_protocol_options.enable_trailers = True
    options.use_downstream_protocol_config.http2_protocol_options.allow_connect = True
    limit_windows(options.use_downstream_protocol_config.http2_protocol_options)
    end_alone(options.use_downstream_protocol_config.http2_protocol_options)
    cluster.typed_extension_protocol_options[_HTTP_OPTIONS].CopyFrom(packed(options))
    return cluster


def _idle(timeout: timedelta) -> HttpProtocolOptions:
    """Return HTTP options in which connections are closed after `timeout` without requests. It is a default: a
    DestinationRule overrides it."""
    result = HttpProtocolOptions()
    result.common_http_protocol_options.idle_timeout.CopyFrom(duration(timeout))
    return result


def _from_loopback() -> BindConfig:
    result = BindConfig(source_address=socket_address("127.0.0.6", 0).socket_address)
    result.extra_source_addresses.add().address.CopyFrom(socket_address("::6", 0).socket_address)
    return result


_OFFERED = {
    None: tls.BYTES,
    UpstreamHttp.HTTP1: tls.HTTP1,
    UpstreamHttp.HTTP2: tls.HTTP2,
    UpstreamHttp.AS_CALLED: tls.ANY_HTTP,
}
_FROM_LOOPBACK = _from_loopback()
