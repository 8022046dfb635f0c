"""The network of this machine, which a mesh must not change."""

import subprocess
from pathlib import Path

_CLUSTERS = "weft-kube"  # prefix of the links of all clusters (`tools/kube/holder.py`)
_COMMANDS = (
    *("ip -o link", "ip -o address", "ip -4 rule", "ip -4 route show table all", "ip -6 route"),
    *("iptables-save", "ip6tables-save"),
)


def network():
    """The current state; compare two calls. Without links of clusters, which may start or end during a test, and
    without comments, which contain the time."""
    seen = {each: subprocess.run(each.split(), capture_output=True, text=True).stdout for each in _COMMANDS}
    lines = {
        command: [line for line in said.splitlines() if not line.startswith("#") and _CLUSTERS not in line]
        for command, said in seen.items()
    }
    return {**lines, "resolv.conf": Path("/etc/resolv.conf").read_text()}
