"""The names that Envoy's resources carry in this mesh: Istio's, so that tools and habits keep working."""

from __future__ import annotations

from ipaddress import ip_address

PASSTHROUGH = "PassthroughCluster"
BLACK_HOLE = "BlackHoleCluster"
NO_BACKEND = "NoSuchBackend"  # never made: what is sent there is answered 500
INBOUND_PASSTHROUGH = "InboundPassthroughCluster"
VIRTUAL_OUTBOUND = "virtualOutbound"
VIRTUAL_INBOUND = "virtualInbound"
AGAIN = "virtualOutboundAgain"
HOLD = "hold|"  # and an address: the cluster that a first call waits for, asked for by name alone


def outbound_cluster(host: str, port: int, subset: str = "") -> str:
    return f"outbound|{port}|{subset}|{host}"


def server_name(host: str, port: int, subset: str = "") -> str:
    """What a caller's TLS names: whoever passes the connection on unopened can read from it where it goes."""
    return f"outbound_.{port}_.{subset}_.{host}"


def inbound_cluster(port: int) -> str:
    return f"inbound|{port}||"


def held(address: str, port: int) -> str:
    """What Envoy itself makes of an address to be called."""
    return f"{HOLD}[{address}]:{port}" if ":" in address else f"{HOLD}{address}:{port}"


def called_at(cluster: str) -> tuple[str, int] | None:
    """The address and port that a held call is to; None if the name is none of a held call."""
    address, _, port = cluster.removeprefix(HOLD).rpartition(":")
    if not cluster.startswith(HOLD) or not port.isdecimal() or int(port) > 65_535:
        return None
    try:
        found = str(ip_address(address.removeprefix("[").removesuffix("]"))), int(port)
    except ValueError:
        return None
    return found if held(*found) == cluster else None  # what is answered is what was asked for


def called_host(cluster: str) -> str:
    """The host that an outbound cluster is of; nothing if it is none."""
    return cluster.rpartition("|")[2] if cluster.startswith("outbound|") else ""


def listener(address: str, port: int) -> str:
    return f"{address}_{port}"
