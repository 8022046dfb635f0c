"""Generates the configuration with which a proxy answers kubelet's probes in the place of the application.

Input: AppProbes. Output: clusters, routes and filters of the proxy's status listener. An HTTP probe is forwarded to
the application, from a source address that the interception rules do not redirect, and kubelet gets the
application's response. For TCP and gRPC probes, Envoy's own health checks test the application, and kubelet gets
their latest result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.model.app_probe import AppProbe, GrpcCheck, HttpCheck

_TYPES = "type.googleapis.com"
_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_MOST_INTERVAL = 2  # seconds between two health checks of a healthy application
_AGAIN = "0.5s"  # for an unhealthy one: short, so that its start is noticed soon


def clusters(probes: Iterable[AppProbe], address: str) -> list[dict[str, Any]]:
    """Return a cluster for each probe. `address`: the pod's own address, at which kubelet would probe the application
    and at which callers call it."""
    return [_cluster(probe, address) for probe in probes]


def routes(probes: Iterable[AppProbe]) -> list[dict[str, Any]]:
    return [_route(probe, probe.check) for probe in probes if isinstance(probe.check, HttpCheck)]


def filters(probes: Iterable[AppProbe]) -> list[dict[str, Any]]:
    """Return the health check filters for TCP and gRPC probes. They must be before the router filter."""
    return [
        {
            "name": "envoy.filters.http.health_check",
            "typed_config": {
                "@type": f"{_TYPES}/envoy.extensions.filters.http.health_check.v3.HealthCheck",
                "pass_through_mode": False,
                "headers": [{"name": ":path", "string_match": {"exact": probe.path}}],
                "cluster_min_healthy_percentages": {_name(probe): {"value": 100}},
            },
        }
        for probe in probes
        if not isinstance(probe.check, HttpCheck)
    ]


def _cluster(probe: AppProbe, address: str) -> dict[str, Any]:
    name, check = _name(probe), probe.check
    host = {"socket_address": {"address": address, "port_value": check.port}}
    cluster: dict[str, Any] = {
        "name": name,
        "type": "STATIC",
        "connect_timeout": f"{probe.timeout}s",
        # The interception rules do not redirect connections from this address, so the probe reaches the application and
        # not the proxy's inbound listener.
        "upstream_bind_config": {
            "source_address": {"address": "127.0.0.6", "port_value": 0},
            "extra_source_addresses": [{"address": {"address": "::6", "port_value": 0}}],
        },
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": host}}]}],
        },
    }
    if isinstance(check, HttpCheck):
        # As in kubelet, each probe opens a new connection.
        options = {"common_http_protocol_options": {"max_requests_per_connection": 1}}
        cluster["typed_extension_protocol_options"] = {_OPTIONS: _protocol({"http_protocol_options": {}}, **options)}
        if check.tls:
            cluster["transport_socket"] = _unverified_tls()
        return cluster
    if isinstance(check, GrpcCheck):
        cluster["typed_extension_protocol_options"] = {_OPTIONS: _protocol({"http2_protocol_options": {}})}
        question: dict[str, Any] = {"grpc_health_check": {"service_name": check.service} if check.service else {}}
    else:
        question = {"tcp_health_check": {}}
    interval = f"{min(probe.period, _MOST_INTERVAL)}s"
    cluster["health_checks"] = [
        {
            "timeout": f"{probe.timeout}s",
            "interval": interval,
            "no_traffic_interval": interval,
            "no_traffic_healthy_interval": interval,
            "unhealthy_interval": _AGAIN,
            "unhealthy_edge_interval": _AGAIN,
            "unhealthy_threshold": 1,
            "healthy_threshold": 1,
            "reuse_connection": False,
            **question,
        }
    ]
    # The application starts only after the proxy is ready, so the proxy must not wait for the application.
    cluster["wait_for_warm_on_init"] = False
    return cluster


def _route(probe: AppProbe, check: HttpCheck) -> dict[str, Any]:
    action: dict[str, Any] = {
        "cluster": _name(probe),
        "prefix_rewrite": check.path,
        "timeout": f"{probe.timeout}s",
    }
    if check.host:
        action["host_rewrite_literal"] = check.host
    return {
        "match": {"path": probe.path},
        "route": action,
        "request_headers_to_remove": ["x-forwarded-proto"],
        # kubelet would follow a Location header to the proxy's port. Without the header, kubelet counts a redirect as
        # success.
        "response_headers_to_remove": ["location"],
    }


def _name(probe: AppProbe) -> str:
    return f"probe|{probe.path}"


def _protocol(explicit: dict[str, Any], **common: dict[str, Any]) -> dict[str, Any]:
    return {"@type": f"{_TYPES}/{_OPTIONS}", "explicit_http_config": explicit, **common}


def _unverified_tls() -> dict[str, Any]:
    """Return a TLS transport socket without verification: as in kubelet, a probe checks that the application
    answers, not its identity."""
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": f"{_TYPES}/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": {"tls_params": {"tls_maximum_protocol_version": "TLSv1_3"}},
        },
    }
