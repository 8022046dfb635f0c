"""The namespaces in which a node lives, held by one process: mounts, network, host name and process ids of its own.

Everything else joins the holder; ending it ends all of them, their mounts and their links. On the machine itself appear
only one link, one folder of cgroups and the node's data. The paths a node is used to (`/var/lib/kubelet`,
`/run/containerd`, `/run/netns`, `/var/log/pods`) exist inside, not outside.
"""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path

from tools.kube.process import Failed, Program, wait_for

from tools.kube import build

# Clusters can stand side by side: the number of each, $WEFT_KUBE, is in its link, its addresses and its folders.
NUMBER = int(os.environ.get("WEFT_KUBE") or 0)
LINK = f"weft-kube-{NUMBER}" if NUMBER else "weft-kube"
# The machine's end of the link, and the node's.
OUTSIDE, INSIDE, PREFIX = f"172.31.254.{4 * NUMBER + 1}", f"172.31.254.{4 * NUMBER + 2}", 30
PODS, SERVICES = "10.244.0.0/16", "10.96.0.0/16"

# What a kubelet sets on its machine. It is shown these values, so that it leaves the machine's own alone.
KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}

# The cgroups are carried to a new /sys (which must show this network's links) before the mounts become shared.
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
    """The namespaces of the node `name`, with its data in `data`/`name`."""

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
        """The holder's process id, 0 when there is none."""
        return self._program.pid()

    def stop(self) -> None:
        """Ends everything inside, and removes its cgroups, which outlive their processes."""
        self._program.stop(kill=True)
        for folder in _cgroup_folders(self.cgroup):
            if folder.exists():
                wait_for(partial(_removed, folder), f"{folder} to be empty", timeout=60)

    def joined(self) -> list[str]:
        """What to put before a command so that it runs on the node."""
        return ["nsenter", f"--target={self.pid()}", "--mount", "--net", "--uts", "--ipc", "--pid", "--wd=/"]

    def run(self, *command: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a command on the node and waits for it."""
        return _run([*self.joined(), *command], check=check)

    def connect(self) -> None:
        """Links the node with the machine: only who asks for the node's address notices."""
        _run(["ip", "link", "add", LINK, "type", "veth", "peer", "name", "eth0", "netns", str(self.pid())])
        _run(["ip", "address", "add", f"{OUTSIDE}/{PREFIX}", "dev", LINK])
        _run(["ip", "link", "set", LINK, "up"])
        self.run("ip", "address", "add", f"{INSIDE}/{PREFIX}", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        # A connection to a service is given its real goal after a route to the service was found.
        self.run("ip", "route", "add", SERVICES, "dev", "eth0")
        # There is nothing else out there, and who asks for it should hear so at once.
        self.run("ip", "route", "add", "unreachable", "default")
        # A pod may speak to the machine outside, which knows no way back to pods.
        masquerade = ["-s", PODS, "-d", OUTSIDE, "-j", "MASQUERADE"]
        self.run("iptables", "-w", "-t", "nat", "-A", "POSTROUTING", *masquerade)


def _removed(folder: Path) -> bool:
    """Whether a cgroup and those inside it are gone; a process that is just ending keeps its own a moment longer."""
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
    """Our cgroup in each hierarchy of the first version, or in the one of the second."""
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
