"""Starts bare Envoys with one plain route each and nothing else: the minimum that a mesh of Envoys can cost.

In a pair, the first Envoy listens on loopback in the client's namespace and calls the second, which listens in the
server's namespace and calls the server. There is no interception, no xDS and no access log. The two Envoys use
mutual TLS between them if credentials are given.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from bench.certificates import Credentials
from bench.process import Failed, Running
from weft.envoy import binary
from weft.model.proxy import PROXY_GID
from weft.netns.namespace import NetworkNamespace, socket_in

Config = dict[str, Any]

_READY_SECONDS = 20.0
_TYPES = "type.googleapis.com"


def plain_proxy(
    listen: tuple[str, int],
    upstream: tuple[str, int],
    *,
    http2_in: bool,
    http2_out: bool,
    tls_in: Credentials | None = None,
    tls_out: Credentials | None = None,
) -> Config:
    options: Config = {}
    if http2_out:
        options = {
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": f"{_TYPES}/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicit_http_config": {"http2_protocol_options": {}},
                }
            }
        }
    manager = {
        "@type": f"{_TYPES}/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "codec_type": "HTTP2" if http2_in else "HTTP1",
        "route_config": {
            "virtual_hosts": [
                {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "next"}}]}
            ]
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{_TYPES}/envoy.extensions.filters.http.router.v3.Router"},
            }
        ],
    }
    return {
        "static_resources": {
            "listeners": [
                {
                    "name": "in",
                    "address": _address(listen),
                    "filter_chains": [
                        {
                            "filters": [
                                {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
                            ],
                            **(_tls("Downstream", tls_in, require_client_certificate=True) if tls_in else {}),
                        }
                    ],
                }
            ],
            "clusters": [
                {
                    "name": "next",
                    "type": "STATIC",
                    "connect_timeout": "5s",
                    "load_assignment": {
                        "cluster_name": "next",
                        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(upstream)}}]}],
                    },
                    **options,
                    **(_tls("Upstream", tls_out, sni="far") if tls_out else {}),
                }
            ],
        }
    }


def start_envoy(
    name: str, config: Config, *, namespace: NetworkNamespace, core: int | None, directory: Path
) -> Running:
    """Start an Envoy with this static config in the namespace. The process has the proxy's group id, so its
    connections are not intercepted."""
    path = directory / f"{name}.json"
    path.write_text(json.dumps(config))
    return Running(
        [
            *(str(binary.find()), "--config-path", str(path), "--disable-hot-restart", "--concurrency", "1"),
            *("--log-level", "warning"),
        ],
        namespace=namespace,
        core=core,
        gid=PROXY_GID,
        log=directory / f"{name}.log",
    )


def wait_open(namespace: NetworkNamespace, address: tuple[str, int]) -> None:
    """Wait until a process listens on the address in the namespace; raise `Failed` after 20 s."""
    until = time.monotonic() + _READY_SECONDS
    while time.monotonic() < until:
        with socket_in(namespace) as probe:
            probe.setblocking(True)
            probe.settimeout(1.0)
            if probe.connect_ex(address) == 0:
                return
        time.sleep(0.005)
    raise Failed(f"no process listens on {address[0]}:{address[1]} in {namespace} after {_READY_SECONDS} s")


def _tls(side: str, credentials: Credentials, **more: Any) -> Config:
    files = {
        "certificate_chain": {"filename": str(credentials.chain)},
        "private_key": {"filename": str(credentials.key)},
    }
    context = {
        "@type": f"{_TYPES}/envoy.extensions.transport_sockets.tls.v3.{side}TlsContext",
        "common_tls_context": {
            "tls_params": {"tls_minimum_protocol_version": "TLSv1_3", "tls_maximum_protocol_version": "TLSv1_3"},
            "tls_certificates": [files],
            "validation_context": {"trusted_ca": {"filename": str(credentials.roots)}},
            "alpn_protocols": ["h2"],
        },
        **more,
    }
    return {"transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": context}}


def _address(address: tuple[str, int]) -> Config:
    return {"socket_address": {"address": address[0], "port_value": address[1]}}
