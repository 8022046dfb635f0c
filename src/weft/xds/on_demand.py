"""Parses the names of on-demand discovery: the address that a held call waits for, the host of an outbound cluster,
and the names of listeners that serve a whole port (`0.0.0.0_PORT`, for all addresses without their own listener).

`weft.translate` builds these names and `weft.mesh` limits how many a group may have. `weft.xds` imports neither of
them, so the constants are repeated here; tests/control/test_xds_names.py checks that they are equal.
"""

from __future__ import annotations

from ipaddress import ip_address

HOLD = "hold|"  # prefix of hold|PORT|ADDRESS, a cluster that a held call waits for and Envoy requests by name
RESUMED = "virtualOutboundAgain"  # the listener that continues held calls; only groups that are on demand have it
WHOLE_PORT = "0.0.0.0_"  # prefix of 0.0.0.0_PORT, the listener for calls to a port that have no listener of their own
CALLED = 5_000  # the most addresses and hosts that a control plane records for one group


def is_held_cluster(name: str) -> bool:
    return name.startswith(HOLD)


def held_address(cluster: str) -> str:
    """Return the destination address in the name of a held call's cluster; empty for any other cluster."""
    hold, _, rest = cluster.partition("|")
    port, _, address = rest.partition("|")
    if f"{hold}|" != HOLD or not (port.isascii() and port.isdecimal()):
        return ""
    try:
        return address if str(ip_address(address)) == address else ""
    except ValueError:
        return ""


def cluster_host(cluster: str) -> str:
    """Return the host in the name of an outbound cluster; empty for any other cluster."""
    return cluster.rpartition("|")[2] if cluster.startswith("outbound|") else ""


def is_whole_port(listener: str) -> bool:
    """Whether this is the name `0.0.0.0_PORT` of a listener for a whole port. Such a listener accepts the calls to the
    port at every address that has no listener of its own. No cluster has such a name."""
    port = listener.removeprefix(WHOLE_PORT)
    return port != listener and len(port) <= 5 and port.isascii() and port.isdecimal()
