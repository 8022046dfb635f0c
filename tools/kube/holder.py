"""Provides the namespaces of a node, owned by one process (the holder): mount, network, UTS and PID namespace.

All programs of the node join these namespaces. When the holder ends, the kernel ends all of the programs, their
mounts and their links. The machine itself only gets one link, one cgroup directory and the node's data. The usual
paths of a node (`/var/lib/kubelet`, `/run/containerd`, `/run/netns`, `/var/log/pods`) exist only inside.
"""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path

from tools.kube.process import Failed, Program, wait_for

from tools.kube import build

# Several clusters can run at once. The number of each, $WEFT_KUBE, is part of the names of its link and directories and
# of its addresses.
NUMBER = int(os.environ.get("WEFT_KUBE") or 0)
LINK = f"weft-kube-{NUMBER}" if NUMBER else "weft-kube"
# The addresses of the two ends of the link: on the machine, and on the node.
OUTSIDE, INSIDE, PREFIX = f"172.31.254.{4 * NUMBER + 1}", f"172.31.254.{4 * NUMBER + 2}", 30
PODS, SERVICES = "10.244.0.0/16", "10.96.0.0/16"

# The kernel settings that kubelet would change. The node sees these values in files mounted over /proc/sys, so kubelet
# does not change the machine's settings.
KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}

# A new /sys is mounted, because it must show the links of this network namespace. The cgroup mounts are moved to it
# before the mounts become shared.
SETUP = """
umount -R -l /run/netns 2>/dev/null || true
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/data /run/sys /run/settings
mount --bind {data} /run/data
mount -t sysfs sysfs /run/sys
mount --rbind /sys/fs/cgroup /run/sys/fs/cgroup
mount --move /run/sys /sys
mount -t tmpfs -o mode=755 tmpfs /var/lib
mkdir -p {data} /var/lib/kubelet /var/lib/containerd /var/lib/cni
mount --move /run/data {data}
for name in kubelet containerd cni; do
  mkdir -p {node}/$name
  mount --bind {node}/$name /var/lib/$name
done
mkdir -p {node}/log
mount --bind {node}/log /var/log
{settings}
hostname {name}
ip link set lo up
echo 1 > /proc/sys/net/ipv4/ip_forward
mount --make-rshared /
touch {node}/ready
exec {pause}
"""


class Holder:
    """The namespaces of the node `name`, whose data is in `data`/`name`."""

    def __init__(self, name: str, data: Path) -> None:
        self.name = name
        self.directory = data / name
        self.cgroup = data.name
        settings = "\n".join(
            f"echo {value} > /run/settings/{path.replace('/', '.')}\n"
            f"mount --bind /run/settings/{path.replace('/', '.')} /proc/sys/{path}"
            for path, value in KERNEL_SETTINGS.items()
            if Path("/proc/sys", path).exists()
        )
        script = SETUP.format(data=data, node=self.directory, name=name, settings=settings, pause=build.path("pause"))
        command = [
            "unshare",
            "--mount",
            "--net",
            "--uts",
            "--ipc",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-exc",
            script,
        ]
        self._program = Program("holder", command, self.directory, joined=True)

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        _make_cgroups(self.cgroup)
        self._program.start()
        wait_for((self.directory / "ready").exists, "the namespaces", self._program.check, timeout=60)

    def pid(self) -> int:
        """The holder's process id, or 0 if no holder runs."""
        return self._program.pid()

    def stop(self) -> None:
        """End all processes of the node, and remove its cgroups, which outlive their processes."""
        self._program.stop(kill=True)
        for folder in _cgroup_folders(self.cgroup):
            if folder.exists():
                wait_for(partial(_removed, folder), f"{folder} to be empty", timeout=60)

    def joined(self) -> list[str]:
        """Return the `nsenter` command to put before a command that should run on the node."""
        return ["nsenter", f"--target={self.pid()}", "--mount", "--net", "--uts", "--ipc", "--pid", "--wd=/"]

    def run(self, *command: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command on the node and wait for it."""
        return _run([*self.joined(), *command], check=check)

    def connect(self) -> None:
        """Link the node with the machine. Only connections to the node's addresses use the link."""
        _run(["ip", "link", "add", LINK, "type", "veth", "peer", "name", "eth0", "netns", str(self.pid())])
        _run(["ip", "address", "add", f"{OUTSIDE}/{PREFIX}", "dev", LINK])
        _run(["ip", "link", "set", LINK, "up"])
        self.run("ip", "address", "add", f"{INSIDE}/{PREFIX}", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        # The kernel looks up a route to the service address before kube-proxy's rules replace it by an endpoint's
        # address.
        self.run("ip", "route", "add", SERVICES, "dev", "eth0")
        # There is no other network, and connections to other addresses should fail at once.
        self.run("ip", "route", "add", "unreachable", "default")
        # Pods may connect to the machine, which has no route to pod addresses.
        masquerade = ["-s", PODS, "-d", OUTSIDE, "-j", "MASQUERADE"]
        self.run("iptables", "-w", "-t", "nat", "-A", "POSTROUTING", *masquerade)


def _removed(folder: Path) -> bool:
    """Remove a cgroup and its children. Return whether they are removed: a process that is just ending keeps its
    cgroup for a moment."""
    for inner in sorted(folder.rglob("*/"), key=lambda path: len(path.parts), reverse=True):
        _remove(inner)
    _remove(folder)
    return not folder.exists()


def _remove(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return


def _cgroup_folders(name: str) -> list[Path]:
    """Return the cgroup directories of the node: one in each hierarchy of cgroup v1, or the one of cgroup v2."""
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        return [root / name]
    return [hierarchy / name for hierarchy in root.iterdir() if hierarchy.is_dir() and not hierarchy.is_symlink()]


def _make_cgroups(name: str) -> None:
    for folder in _cgroup_folders(name):
        folder.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if (folder.parent / "cgroup.sane_behavior").exists() and (folder / setting).exists():
                (folder / setting).write_text((folder.parent / setting).read_text())


def _run(command: list[str | Path], *, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise Failed(f"`{' '.join(str(word) for word in command)}` failed: {done.stderr.strip()}")
    return done
