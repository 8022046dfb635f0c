"""The state of this machine outside of a cluster: its mounts, links, packet filter and settings."""

import subprocess
from pathlib import Path

from tools.kube.cluster import DATA
from tools.kube.holder import KERNEL_SETTINGS, LINK


def look():
    return {"links": links(), "rules": rules(), "settings": settings(), "folders": folders()}


def mounts(process="self"):
    """The mounts that a process sees: (device, root, where)."""
    lines = Path(f"/proc/{process}/mountinfo").read_text().splitlines()
    return {tuple(line.split()[2:5]) for line in lines}


def leaked(before, node):
    """Mounts of the node that appeared on this machine since `before`, identified by device or by path.

    Not simply all new mounts: other meshes and builds run on this machine at the same time.
    """
    devices = {device for device, _, _ in mounts(node)} - {device for device, _, _ in before}
    return {
        (device, root, where)
        for device, root, where in mounts() - before
        if (device in devices and not _of_others(root, where)) or f"/{DATA.name}/" in f"{root}/{where}/"
    }


def _of_others(root, where):
    """A named network namespace that is not of a pod: all named network namespaces share one device."""
    return root.startswith("net:[") and not Path(where).name.startswith("cni-")


def remains():
    """Leftovers of an ended cluster."""
    cgroups = [*Path("/sys/fs/cgroup").glob(DATA.name), *Path("/sys/fs/cgroup").glob(f"*/{DATA.name}")]
    return [path for path in [Path("/sys/class/net", LINK), DATA, *cgroups] if path.exists()]


def links():
    """Without those of clusters: another one may start or end at the same time."""
    return {path.name for path in Path("/sys/class/net").iterdir() if not path.name.startswith("weft-kube")}


def rules():
    said = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    return [line for line in said.splitlines() if line.startswith("-A")]


def settings():
    names = [*KERNEL_SETTINGS, "net/ipv4/ip_forward", "net/netfilter/nf_conntrack_max"]
    return {name: Path("/proc/sys", name).read_text() for name in names if Path("/proc/sys", name).exists()}


def folders():
    """The usual directories of a node that exist here."""
    usual = [
        "/var/lib/kubelet",
        "/var/lib/cni",
        "/run/containerd",
        "/etc/cni",
        "/usr/libexec/kubernetes",
        "/var/log/pods",
    ]
    return {path for path in usual if Path(path).exists()}
