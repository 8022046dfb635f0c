"""Generates the configuration of the two Envoys through which a mesh on one machine reaches hosts outside of it.

The first Envoy runs in the mesh's own network namespace. Its port gets the connections that leave the mesh, which the
namespace's nat table redirects. It forwards each connection, with its original destination in a PROXY protocol header,
to the Unix socket of the second Envoy. The second Envoy runs in the machine's network and connects to that destination.
Both forward TCP without parsing it. Rule: a connection whose destination is in a refused range is closed before the
second Envoy connects anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network
from typing import Any

from weft.envoy.front_door import by_file, listed, with_proxy_header

INSIDE, OUTSIDE, LISTENERS, SOCKET = "inside.json", "outside.json", "listeners.json", "way-out.sock"
OUTSIDE_DIRECTORY = "outside"  # below the directory of both Envoys: the files that change

_TYPES = "type.googleapis.com"
_LISTENER = f"{_TYPES}/envoy.config.listener.v3.Listener"
_FILTERS = f"{_TYPES}/envoy.extensions.filters.listener"
_CONNECT_TIMEOUT = "10s"  # as for the clusters of proxies
_REFUSED, _ANYWHERE, _OUT = "refused", "anywhere", "out"


def inside(directory: str, addresses: Iterable[str], port: int) -> str:
    """Return the bootstrap of the first Envoy, in the mesh's namespace. It listens on `port` at `addresses`, the
    addresses of the mesh's bridge, one per IP family. `directory`: contains the second Envoy's socket."""
    first, *others = ({"socket_address": {"address": each, "port_value": port}} for each in addresses)
    listener = {
        "name": _OUT,
        "address": first,
        "additional_addresses": [{"address": each} for each in others],
        "listener_filters": [_listener_filter("original_dst", "OriginalDst")],
        "filter_chains": [_to(_OUT)],
    }
    socket = {"endpoint": {"address": {"pipe": {"path": f"{directory}/{SOCKET}"}}}}
    cluster = {
        "name": _OUT,
        "type": "STATIC",
        "connect_timeout": _CONNECT_TIMEOUT,
        "load_assignment": {"cluster_name": _OUT, "endpoints": [{"lb_endpoints": [socket]}]},
        "transport_socket": with_proxy_header(),
    }
    return json.dumps(
        {"node": _node("egress-inside"), "static_resources": {"listeners": [listener], "clusters": [cluster]}}
    )


def outside(directory: str) -> str:
    """Return the bootstrap of the second Envoy, in the machine's network. It reads its listener from a file below
    `directory`, because the machine's own addresses, to which connections are refused, may change."""
    clusters = [
        {
            "name": _ANYWHERE,
            "type": "ORIGINAL_DST",
            "lb_policy": "CLUSTER_PROVIDED",
            "connect_timeout": _CONNECT_TIMEOUT,
        },
        {
            "name": _REFUSED,
            "type": "STATIC",
            "connect_timeout": _CONNECT_TIMEOUT,
        },  # no endpoint: connections are closed
    ]
    return json.dumps(
        {
            "node": _node("egress-outside"),
            "dynamic_resources": {"lds_config": by_file(f"{directory}/{OUTSIDE_DIRECTORY}", LISTENERS)},
            "static_resources": {"clusters": clusters},
        }
    )


def listeners(directory: str, refused: Iterable[IPv4Network | IPv6Network]) -> str:
    """Return the content of the second Envoy's listener file. `directory`: contains the socket on which it listens.
    Connections to `refused` are closed. If the ranges change, connections to other destinations stay open, because
    their filter chain stays the same."""
    ranges = [{"address_prefix": str(each.network_address), "prefix_len": each.prefixlen} for each in refused]
    listener = {
        "@type": _LISTENER,
        "name": _OUT,
        "address": {"pipe": {"path": f"{directory}/{SOCKET}", "mode": 0o600}},
        "listener_filters": [_listener_filter("proxy_protocol", "ProxyProtocol")],
        "filter_chains": [{"name": _REFUSED, "filter_chain_match": {"prefix_ranges": ranges}, **_to(_REFUSED)}],
        "default_filter_chain": {"name": _ANYWHERE, **_to(_ANYWHERE)},
    }
    return listed([listener])


def _node(name: str) -> dict[str, str]:
    return {"id": name, "cluster": name}


def _listener_filter(name: str, message: str) -> dict[str, Any]:
    return {
        "name": f"envoy.filters.listener.{name}",
        "typed_config": {"@type": f"{_FILTERS}.{name}.v3.{message}"},
    }


def _to(cluster: str) -> dict[str, Any]:
    proxy = {"@type": f"{_TYPES}/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"}
    proxy |= {"stat_prefix": cluster, "cluster": cluster, "idle_timeout": "0s"}  # the pod's proxy sets the timeout
    return {"filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": proxy}]}
