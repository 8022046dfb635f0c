"""Names of on-demand discovery on the wire: which clusters held calls wait for, the host or address in a cluster name,
and which listeners serve a whole port.

`weft.translate` builds these names and `weft.mesh` bounds how many a group may have; `weft.xds` imports neither, and
reads the names here. tests/control/test_xds_names.py keeps both sides equal.
"""

from __future__ import annotations

from ipaddress import ip_address

HOLD = "hold|"  # hold|PORT|ADDRESS: the cluster that a held call waits for, requested by name only
RESUMED = "virtualOutboundAgain"  # the listener that continues held calls; a group that has it is on demand
WHOLE_PORT = "0.0.0.0_"  # 0.0.0.0_PORT: the listener for the calls to a port that have no listener of their own
CALLED = 5_000  # addresses and hosts that a control plane keeps for one group


def is_held_cluster(name: str) -> bool:
    return name.startswith(HOLD)


def held_address(cluster: str) -> str:
    """The destination address of a held call; empty if the cluster is not one of a held call."""
    hold, _, rest = cluster.partition("|")
    port, _, address = rest.partition("|")
    if f"{hold}|" != HOLD or not (port.isascii() and port.isdecimal()):
        return ""
    try:
        return address if str(ip_address(address)) == address else ""
    except ValueError:
        return ""


def cluster_host(cluster: str) -> str:
    """The host of an outbound cluster; empty for every other cluster."""
    return cluster.rpartition("|")[2] if cluster.startswith("outbound|") else ""


def is_whole_port(listener: str) -> bool:
    """Whether the listener serves a whole port. Clusters and listeners have no names in common."""
    return listener.startswith(WHOLE_PORT)
