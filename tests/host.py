"""This machine's own network, as a mesh must leave it."""

import subprocess
from pathlib import Path

_CLUSTERS = "weft-kube"  # how the links of all clusters begin (`tools/kube/holder.py`)
_COMMANDS = (
    *("ip -o link", "ip -o address", "ip -4 rule", "ip -4 route show table all", "ip -6 route"),
    *("iptables-save", "ip6tables-save"),
)


def network():
    """What it looks like now; compare two calls. Without links of clusters, which may come or go beside a test, and
    without comments, which carry the time."""
    seen = {each: subprocess.run(each.split(), capture_output=True, text=True).stdout for each in _COMMANDS}
    lines = {
        command: [line for line in said.splitlines() if not line.startswith("#") and _CLUSTERS not in line]
        for command, said in seen.items()
    }
    return {**lines, "resolv.conf": Path("/etc/resolv.conf").read_text()}
