"""Runs the programs of a node: containerd with runc and CNI plugins from Debian, kubelet and kube-proxy.

The configuration has only settings that must differ from the defaults, each with the reason.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml
from tools.kube.api_server import PATIENCE, ApiServer, RequestFailed
from tools.kube.certificates import Authority
from tools.kube.holder import INSIDE, PODS, Holder
from tools.kube.process import Failed, Program, wait_for

from tools.kube import archive, build, kubeconfig

PAUSE_IMAGE = "docker.io/library/weft-kube-pause:1"
DNS_ADDRESS = "10.96.0.10"
# The path on the node. On the machine itself, the same files are in `Node.kubelet_root`.
KUBELET_ROOT = Path("/var/lib/kubelet")
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"


class Node:
    """The containerd, kubelet and kube-proxy in the namespaces of `holder`, connected to the API server `server`."""

    def __init__(self, holder: Holder, server: ApiServer) -> None:
        self.name = holder.name
        self.address = INSIDE
        self.kubelet_root = holder.directory / "kubelet"
        self._holder = holder
        self._server = server
        self._directory = holder.directory
        self.containerd = self._program("containerd", "containerd", f"--config={self._directory / 'containerd.toml'}")
        self.kubelet = self._program(
            "kubelet",
            build.path("kubelet"),
            f"--config={self._directory / 'kubelet.yaml'}",
            f"--kubeconfig={self._directory / 'kubelet.kubeconfig'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            f"--root-dir={KUBELET_ROOT}",
        )
        self.kube_proxy = self._program(
            "kube-proxy", build.path("kube-proxy"), f"--config={self._directory / 'kube-proxy.yaml'}"
        )

    def start(self) -> None:
        """Start all three programs. Return when images can be loaded; the node may not be ready yet."""
        self._write_settings()
        self.containerd.start()
        wait_for(self._containerd_answers, "containerd", self.containerd.check, timeout=PATIENCE)
        self.load_image(
            archive.write(
                self._directory / "pause.tar",
                PAUSE_IMAGE,
                files={"/pause": build.path("pause")},
                config={"Entrypoint": ["/pause"]},
            )
        )
        self.kubelet.start()
        self.kube_proxy.start()

    def wait_ready(self) -> None:
        wait_for(self._ready, f"{self.name} to be ready", self._check, timeout=PATIENCE)

    def restart_kubelet(self, *, kill: bool = False) -> None:
        self.kubelet.stop(kill=kill)
        self.kubelet.start()

    def load_image(self, tar: Path) -> list[str]:
        """Load an image archive (OCI or Docker). Return the names by which pods can use the image."""
        with tar.open("rb") as content:
            command = [*self._holder.joined(), "ctr", "-n", "k8s.io", "images", "import"]
            command += ["--snapshotter", self._snapshotter(), "-"]
            done = subprocess.run(command, stdin=content, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"{tar} could not be loaded: {done.stderr.strip()}")
        names = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("unpacking ")]
        # kubelet sees an image only after containerd's CRI plugin has labelled it, shortly after the import.
        wait_for(lambda: set(names) <= self._marked_images(), f"{tar} to be visible to kubelet", timeout=PATIENCE)
        return names

    def _marked_images(self) -> set[str]:
        done = self._holder.run("ctr", "-n", "k8s.io", "images", "ls")
        return {line.split()[0] for line in done.stdout.splitlines() if "io.cri-containerd.image=managed" in line}

    def _containerd_answers(self) -> bool:
        # containerd replies to a version request before its CRI plugin is loaded, so this reads the plugin's state
        # instead.
        done = self._holder.run("ctr", "plugins", "ls", check=False)
        return any(line.split()[1:2] == ["cri"] and line.split()[-1] == "ok" for line in done.stdout.splitlines())

    def _ready(self) -> bool:
        """Return whether the node is Ready and kubelet lists all pods of the node. The Ready condition alone may be
        from before a restart."""
        try:
            node = self._server.request("GET", f"/api/v1/nodes/{self.name}")
            conditions = node["status"].get("conditions", [])
            if not any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
                return False
            bound = self._server.request("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={self.name}")
            listed = self._server.request("GET", f"/api/v1/nodes/{self.name}/proxy/pods")
        except RequestFailed:
            return False
        return _identities(bound) <= _identities(listed)

    def _check(self) -> None:
        for program in (self.containerd, self.kubelet, self.kube_proxy):
            program.check()

    def _program(self, name: str, *command: str | Path) -> Program:
        return Program(name, [*self._holder.joined(), *command], self._directory, joined=True)

    def _snapshotter(self) -> str:
        """Return the snapshotter for containerd. overlayfs cannot be mounted on overlayfs, which is the filesystem
        of a machine that is itself a container."""
        kind = subprocess.run(
            ["stat", "--file-system", "--format=%T", self._directory], capture_output=True, text=True, check=False
        ).stdout.strip()
        return "native" if kind == "overlayfs" else "overlayfs"

    def _write_settings(self) -> None:
        directory, keys = self._directory, self._server.keys
        kubelet = Authority(keys).server(
            "kubelet", (self.name, self.address), user=f"system:node:{self.name}", groups=("system:nodes",)
        )
        kubeconfig.write(directory / "kubelet.kubeconfig", self._server.server, self._server.ca, kubelet)
        proxy = keys / "kube-proxy.crt"
        kubeconfig.write(directory / "kube-proxy.kubeconfig", self._server.server, self._server.ca, proxy)
        (directory / "containerd.toml").write_text(_containerd(self._snapshotter()))
        (directory / "kubelet.yaml").write_text(yaml.safe_dump(_kubelet(keys, kubelet, directory, self._holder.cgroup)))
        (directory / "kube-proxy.yaml").write_text(yaml.safe_dump(_kube_proxy(self.name, directory)))
        (directory / "resolv.conf").write_text(f"nameserver {DNS_ADDRESS}\n")
        networks = directory / "cni" / "net.d"
        networks.mkdir(parents=True, exist_ok=True)
        (networks / "10-weft.conflist").write_text(json.dumps(_network()))


def _identities(pods: Any) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods["items"] or ()}


def _containerd(snapshotter: str) -> str:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]

[grpc]
address = "{CONTAINERD_SOCKET}"

[{cri}]
sandbox_image = "{PAUSE_IMAGE}"
# A machine without CAP_SYS_RESOURCE can not lower a score; without this every sandbox fails there.
restrict_oom_score_adj = true

[{cri}.containerd]
snapshotter = "{snapshotter}"
default_runtime_name = "runc"

[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[{cri}.cni]
bin_dir = "/usr/lib/cni"
conf_dir = "/var/lib/cni/net.d"
"""


def _network() -> dict[str, Any]:
    # Point-to-point links: packets between pods pass the node's routing, where kube-proxy's rules apply.
    ranges = [[{"subnet": PODS.replace("/16", "/24")}]]
    addresses = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    plugins = [{"type": "ptp", "ipam": addresses}, {"type": "portmap", "capabilities": {"portMappings": True}}]
    return {"cniVersion": "1.0.0", "name": "weft", "plugins": plugins}


def _kubelet(keys: Path, certificate: Path, directory: Path, cgroup: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"x509": {"clientCAFile": str(keys / "ca.crt")}, "anonymous": {"enabled": False}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(certificate),
        "tlsPrivateKeyFile": str(certificate.with_suffix(".key")),
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": str(directory / "resolv.conf"),
        "volumePluginDir": str(KUBELET_ROOT / "volume-plugins"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        # Accept a machine with cgroup v1.
        "failCgroupV1": False,
        # The node shares the machine: it reserves no resources, and does not evict pods because of other processes.
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        # Images are loaded from archives, so a deleted image could not be pulled again.
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": False,
    }


def _kube_proxy(name: str, directory: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(directory / "kube-proxy.kubeconfig")},
        "hostnameOverride": name,
        "mode": "iptables",
        "clusterCIDR": PODS,
        "iptables": {"minSyncPeriod": "200ms"},
        # The connection-tracking table belongs to the machine; do not change its size.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "oomScoreAdj": 0,
    }
