"""Generates the configuration of the Envoy that publishes a mesh's gateways on ports of this machine.

That Envoy forwards TCP connections; it does not parse HTTP and gets no config from the control plane. A connection to a
published port is forwarded to the Unix socket of one of the gateway's pods, with a PROXY protocol header that contains
the client's address. Input: the published ports. Output: the text of the Envoy's bootstrap and xDS files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

BOOTSTRAP, LISTENERS, CLUSTERS, ADMIN_SOCKET = "front-door.json", "listeners.json", "clusters.json", "admin.sock"

_TYPES = "type.googleapis.com"
_MOST_CONNECTIONS = 10_000
_CONNECT_TIMEOUT = "2s"


class HostPort(msgspec.Struct, frozen=True, order=True):
    """A published port of this machine, and the paths of the Unix sockets to which its connections are balanced."""

    address: str
    port: int
    sockets: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.address.replace(':', '.')}_{self.port}"

    @property
    def file(self) -> str:
        """Return the name of the EDS file with this port's sockets. Each port has an EDS file of its own, so that
        its listener and connections are kept when the sockets change."""
        return f"sockets-{self.name}.json"


def bootstrap(directory: str) -> str:
    """Return the bootstrap of the Envoy that publishes the ports. It makes Envoy read its xDS config from the files
    in `directory`. Envoy reads a file again when another file is renamed over it."""
    return json.dumps(
        {
            "node": {"id": "front-door", "cluster": "front-door"},
            "admin": {"address": {"pipe": {"path": f"{directory}/{ADMIN_SOCKET}", "mode": 0o600}}},
            "dynamic_resources": {
                "lds_config": by_file(directory, LISTENERS),
                "cds_config": by_file(directory, CLUSTERS),
            },
            "overload_manager": {
                "resource_monitors": [
                    {
                        "name": "envoy.resource_monitors.global_downstream_max_connections",
                        "typed_config": {
                            "@type": f"{_TYPES}/envoy.extensions.resource_monitors.downstream_connections.v3"
                            ".DownstreamConnectionsConfig",
                            "max_active_downstream_connections": _MOST_CONNECTIONS,
                        },
                    }
                ]
            },
        }
    )


def files(directory: str, doors: Sequence[HostPort]) -> Mapping[str, str]:
    """Return the content of each xDS file for the published ports `doors`, by the file's name, in the order of writing:
    clusters before the listeners that refer to them. `directory`: where the files will be; clusters refer to their EDS
    files there."""
    return {
        **{door.file: listed([_assignment(door)]) for door in doors},
        CLUSTERS: listed([_cluster(directory, door) for door in doors]),
        LISTENERS: listed([_listener(door) for door in doors]),
    }


def with_proxy_header() -> dict[str, Any]:
    """Return the transport socket of connections that begin with a PROXY protocol header."""
    sockets = f"{_TYPES}/envoy.extensions.transport_sockets"
    plain = {"@type": f"{sockets}.raw_buffer.v3.RawBuffer"}
    return {
        "name": "envoy.transport_sockets.upstream_proxy_protocol",
        "typed_config": {
            "@type": f"{sockets}.proxy_protocol.v3.ProxyProtocolUpstreamTransport",
            "config": {"version": "V2"},
            "transport_socket": {"name": "envoy.transport_sockets.raw_buffer", "typed_config": plain},
        },
    }


def listed(resources: list[dict[str, Any]]) -> str:
    """Return the content of an xDS file with these resources, with a version made from their content."""
    encoded = json.dumps(resources, sort_keys=True)
    version = hashlib.sha256(encoded.encode()).hexdigest()[:16]
    return f'{{"version_info": "{version}", "resources": {encoded}}}'


def by_file(directory: str, name: str) -> dict[str, Any]:
    """Return the config source that makes Envoy read this file, again whenever another file is renamed over it."""
    source = {"path": f"{directory}/{name}", "watched_directory": {"path": directory}}
    return {"path_config_source": source, "resource_api_version": "V3"}


def _listener(door: HostPort) -> dict[str, Any]:
    proxy = {"@type": f"{_TYPES}/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"}
    proxy |= {"stat_prefix": door.name, "cluster": door.name, "idle_timeout": "0s"}  # the gateway sets the timeout
    return {
        "@type": f"{_TYPES}/envoy.config.listener.v3.Listener",
        "name": door.name,
        "address": {"socket_address": {"address": door.address, "port_value": door.port}},
        # With SO_REUSEPORT, another program of the same user, such as another mesh, could take half of the connections.
        "enable_reuse_port": False,
        "filter_chains": [{"filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": proxy}]}],
    }


def _cluster(directory: str, door: HostPort) -> dict[str, Any]:
    return {
        "@type": f"{_TYPES}/envoy.config.cluster.v3.Cluster",
        "name": door.name,
        "type": "EDS",
        "eds_cluster_config": {"eds_config": by_file(directory, door.file)},
        "connect_timeout": _CONNECT_TIMEOUT,
        "transport_socket": with_proxy_header(),
    }


def _assignment(door: HostPort) -> dict[str, Any]:
    return {
        "@type": f"{_TYPES}/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": door.name,
        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": path}}}} for path in door.sockets]}],
    }
