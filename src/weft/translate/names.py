"""The names of Envoy's resources. They are the same as Istio's, so that tools and habits keep working."""

from __future__ import annotations

from ipaddress import ip_address

from weft.model.proxy import MARKS

PASSTHROUGH = "PassthroughCluster"
BLACK_HOLE = "BlackHoleCluster"
NO_BACKEND = "NoSuchBackend"  # this cluster never exists: requests to it get 500
INBOUND_PASSTHROUGH = "InboundPassthroughCluster"
VIRTUAL_OUTBOUND = "virtualOutbound"
VIRTUAL_INBOUND = "virtualInbound"
AGAIN = "virtualOutboundAgain"
UNKNOWN = "virtualOutboundUnknown"
AS_CALLED = "as-called"
# Prefix of the subset in clusters of a headless service where the proxy chooses the pod; no subset's name begins with
# it.
CHOSEN = "~"
_OWN = "sidecar_"
HOLD = "hold|"  # prefix of on-demand clusters for held calls: `hold|PORT|ADDRESS`, with a port of the proxy


def outbound_cluster(host: str, port: int, subset: str = "", *, chosen: bool = False) -> str:
    """Return the name of an outbound cluster. A headless service has two: in one, the caller chooses the pod by its
    address; in the other (`chosen`), the proxy chooses the pod. Routes of other hosts lead to the latter."""
    return f"outbound|{port}|{CHOSEN if chosen else ''}{subset}|{host}"


def server_name(host: str, port: int, subset: str = "") -> str:
    """Return the SNI that a caller sends in mutual TLS: it contains the called host, port and subset, so that a
    passthrough proxy can read the destination from it."""
    return f"outbound_.{port}_.{subset}_.{host}"


def inbound_cluster(port: int, *, as_called: bool = False) -> str:
    """Return the name of the cluster to the workload's own port. `as_called`: the second cluster of the port, which
    keeps the caller's HTTP version, for services that declare no protocol."""
    return f"inbound|{port}|{AS_CALLED if as_called else ''}|"


def held(address: str) -> tuple[str, ...]:
    """Return the names of the on-demand clusters through which held calls to an address continue: one for each port of
    the proxy at which such a call may arrive."""
    return tuple(f"{HOLD}{port}|{address}" for port in MARKS)


def called_at(cluster: str) -> str:
    """Return the destination address that the name of a held call's cluster contains (see `held`); "" if `cluster` is
    not the name of such a cluster."""
    try:
        address = str(ip_address(cluster.rpartition("|")[2]))
    except ValueError:
        return ""
    return address if cluster in held(address) else ""  # only if the name is spelled exactly so


def called_host(cluster: str) -> str:
    """Return the host of an outbound cluster, given the cluster's name; "" if it is not the name of an outbound
    cluster."""
    return cluster.rpartition("|")[2] if cluster.startswith("outbound|") else ""


def listener(address: str, port: int) -> str:
    return f"{address}_{port}"


def own_listener(address: str, port: int) -> str:
    """Return the name of a Sidecar's listener with an address of its own, and of its route configuration. The name has
    a prefix, which distinguishes it from the name of a service's listener at the same address."""
    return f"{_OWN}{listener(address, port)}"


def is_own_listener(name: str) -> bool:
    return name.startswith(_OWN)
