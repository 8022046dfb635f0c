"""The names that Envoy's resources carry in this mesh: Istio's, so that tools and habits keep working."""

from __future__ import annotations

PASSTHROUGH = "PassthroughCluster"
BLACK_HOLE = "BlackHoleCluster"
NO_BACKEND = "NoSuchBackend"  # never made: what is sent there is answered 500
INBOUND_PASSTHROUGH = "InboundPassthroughCluster"
VIRTUAL_OUTBOUND = "virtualOutbound"
VIRTUAL_INBOUND = "virtualInbound"


def outbound_cluster(host: str, port: int, subset: str = "") -> str:
    return f"outbound|{port}|{subset}|{host}"


def server_name(host: str, port: int, subset: str = "") -> str:
    """What a caller's TLS names: whoever passes the connection on unopened can read from it where it goes."""
    return f"outbound_.{port}_.{subset}_.{host}"


def inbound_cluster(port: int) -> str:
    return f"inbound|{port}||"


def listener(address: str, port: int) -> str:
    return f"{address}_{port}"
