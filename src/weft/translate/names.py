"""The names that Envoy's resources carry in this mesh: Istio's, so that tools and habits keep working."""

from __future__ import annotations

from ipaddress import ip_address

from weft.model.proxy import MARKS

PASSTHROUGH = "PassthroughCluster"
BLACK_HOLE = "BlackHoleCluster"
NO_BACKEND = "NoSuchBackend"  # never made: what is sent there is answered 500
INBOUND_PASSTHROUGH = "InboundPassthroughCluster"
VIRTUAL_OUTBOUND = "virtualOutbound"
VIRTUAL_INBOUND = "virtualInbound"
AGAIN = "virtualOutboundAgain"
UNKNOWN = "virtualOutboundUnknown"
AS_CALLED = "as-called"
CHOSEN = "~"  # before a subset's name, which never begins so: of a headless service's pods the proxy chooses
HOLD = "hold|"  # with a port of the proxy and an address: the cluster that a call waits for, asked for by name alone


def outbound_cluster(host: str, port: int, subset: str = "", *, chosen: bool = False) -> str:
    """`chosen`: for the routes of other hosts."""
    return f"outbound|{port}|{CHOSEN if chosen else ''}{subset}|{host}"


def server_name(host: str, port: int, subset: str = "") -> str:
    """What a caller's TLS names: whoever passes the connection on unopened can read from it where it goes."""
    return f"outbound_.{port}_.{subset}_.{host}"


def inbound_cluster(port: int, *, as_called: bool = False) -> str:
    """`as_called`: beside the one that speaks as some services declare, for the callers of those that do not."""
    return f"inbound|{port}|{AS_CALLED if as_called else ''}|"


def held(address: str) -> tuple[str, ...]:
    """By which calls to an address go on, whatever their port: as Envoy names them, by where they have come to."""
    return tuple(f"{HOLD}{port}|{address}" for port in MARKS)


def called_at(cluster: str) -> str:
    """The address that a held call is to; nothing if the name is none of a held call."""
    try:
        found = str(ip_address(cluster.rpartition("|")[2]))
    except ValueError:
        return ""
    return found if cluster in held(found) else ""  # what is answered is what was asked for


def called_host(cluster: str) -> str:
    """The host that an outbound cluster is of; nothing if it is none."""
    return cluster.rpartition("|")[2] if cluster.startswith("outbound|") else ""


def listener(address: str, port: int) -> str:
    return f"{address}_{port}"
