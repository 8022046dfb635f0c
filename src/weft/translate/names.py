"""The names of Envoy's resources: Istio's, so that tools and habits keep working."""

from __future__ import annotations

from ipaddress import ip_address

from weft.model.proxy import MARKS

PASSTHROUGH = "PassthroughCluster"
BLACK_HOLE = "BlackHoleCluster"
NO_BACKEND = "NoSuchBackend"  # never exists: requests to it get 500
INBOUND_PASSTHROUGH = "InboundPassthroughCluster"
VIRTUAL_OUTBOUND = "virtualOutbound"
VIRTUAL_INBOUND = "virtualInbound"
AGAIN = "virtualOutboundAgain"
UNKNOWN = "virtualOutboundUnknown"
AS_CALLED = "as-called"
CHOSEN = "~"  # before a subset's name, which never begins with it: the proxy chooses a pod of a headless service
HOLD = "hold|"  # with a port of the proxy and an address: the on-demand cluster that a held call waits for


def outbound_cluster(host: str, port: int, subset: str = "", *, chosen: bool = False) -> str:
    """`chosen`: for the routes of other hosts."""
    return f"outbound|{port}|{CHOSEN if chosen else ''}{subset}|{host}"


def server_name(host: str, port: int, subset: str = "") -> str:
    """The SNI of a caller's mutual TLS, from which a passthrough proxy reads the destination."""
    return f"outbound_.{port}_.{subset}_.{host}"


def inbound_cluster(port: int, *, as_called: bool = False) -> str:
    """`as_called`: the second cluster of a port, for callers of services that declare no protocol."""
    return f"inbound|{port}|{AS_CALLED if as_called else ''}|"


def held(address: str) -> tuple[str, ...]:
    """The clusters through which held calls to an address continue, one per port of the proxy at which they may
    arrive."""
    return tuple(f"{HOLD}{port}|{address}" for port in MARKS)


def called_at(cluster: str) -> str:
    """The destination address of a held call's cluster; "" if the name is not that of such a cluster."""
    try:
        found = str(ip_address(cluster.rpartition("|")[2]))
    except ValueError:
        return ""
    return found if cluster in held(found) else ""  # only for exactly the requested name


def called_host(cluster: str) -> str:
    """The host of an outbound cluster; "" if it is not an outbound cluster."""
    return cluster.rpartition("|")[2] if cluster.startswith("outbound|") else ""


def listener(address: str, port: int) -> str:
    return f"{address}_{port}"
