"""A whole Kubernetes cluster of one node on this machine, for tests and for manual use.

`make kube-up` starts a cluster that keeps running, and `make kube-down` ends it. Tests use that cluster, or start
one for their run. There is at most one cluster for each number ($WEFT_KUBE, default 0). Remains of a killed run are
found by their records and removed before the next start.

A second node would need a second Holder, linked to the first, and a Node with its own range of pod addresses.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml
from tools.kube.api_server import PATIENCE, ApiServer
from tools.kube.holder import INSIDE, LINK, Holder
from tools.kube.node import Node
from tools.kube.process import Failed, Program, Record, record, runs

from tools.kube import archive, build, go, kubeconfig

STATE = Path("/run", LINK)
DATA = Path("/var/lib", LINK)
NODE = "node-1"
PORT = 6443
# The address of the service `kubernetes`: the first of the range of service addresses.
NAMES = ("10.96.0.1",)
DNS = Path(__file__).parent / "dns.yaml"
DNS_IMAGE = "docker.io/library/weft-kube-coredns:1"
# An image that contains only links into /usr. With the node's /usr mounted, it has all programs of this machine.
HOST_IMAGE = "docker.io/library/weft-kube-host:1"

Tell = Callable[[str], None]


class State(msgspec.Struct, frozen=True):
    """The process that owns the cluster, with which the cluster ends; None if the cluster keeps running."""

    owner: Record | None


class Cluster:
    """A running cluster. Each program can be stopped and started again, as happens on real machines."""

    def __init__(self, holder: Holder) -> None:
        self.api = ApiServer(DATA, address=INSIDE, port=PORT, joined=holder.joined(), names=NAMES)
        self.node = Node(holder, self.api)
        self.holder = holder
        self.kubeconfig = self.api.kubeconfig
        self.controllers = self._program(
            "kube-controller-manager",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--use-service-account-credentials",
            # The default is outside /var/lib, so the controller manager would create it on the machine itself.
            "--flex-volume-plugin-dir=/var/lib/kubelet/volume-plugins",
            f"--service-account-private-key-file={self.api.keys / 'service-account.key'}",
            f"--root-ca-file={self.api.ca}",
            f"--cluster-signing-cert-file={self.api.ca}",
            f"--cluster-signing-key-file={self.api.ca.with_suffix('.key')}",
        )
        self.scheduler = self._program("kube-scheduler", "--leader-elect=false", "--bind-address=127.0.0.1")

    def start(self, tell: Tell) -> None:
        tell("starting the API server")
        self.api.start()
        tell("starting the node")
        self.controllers.start()
        self.scheduler.start()
        self.node.start()
        self._load_own_images()
        self.apply(*yaml.safe_load_all(DNS.read_text()))
        self.node.wait_ready()
        tell("waiting for the cluster's DNS")
        self.kubectl("rollout", "status", "--namespace=kube-system", "deployment/coredns", f"--timeout={PATIENCE:.0f}s")

    def kubectl(self, *arguments: str, text: str = "") -> str:
        """Run kubectl and return its output; raise `Failed` with kubectl's error message."""
        command: list[str | Path] = [build.path("kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"`kubectl {' '.join(arguments)}` failed: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *objects: dict[str, Any]) -> None:
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=yaml.safe_dump_all(objects))

    def load_image(self, tar: Path) -> list[str]:
        """Load an image archive into every node. Return the names by which pods can use the image (with
        `imagePullPolicy: Never`)."""
        return self.node.load_image(tar)

    def restart_api(self, *, kill: bool = False) -> None:
        self.api.restart_api(kill=kill)

    def restart_kubelet(self, *, kill: bool = False) -> None:
        self.node.restart_kubelet(kill=kill)
        self.node.wait_ready()

    def compact(self) -> int:
        """Compact etcd. After a restart of the API server, a watch from an older revision then gets status 410."""
        return self.api.compact()

    def _program(self, name: str, *arguments: str) -> Program:
        config = DATA / f"{name}.kubeconfig"
        if not config.exists():
            kubeconfig.write(config, self.api.server, self.api.ca, self.api.keys / f"{name}.crt")
        authentication = [f"--{kind}-kubeconfig={config}" for kind in ("authentication", "authorization")]
        command: list[str | Path] = [build.path(name), f"--kubeconfig={config}", *authentication, *arguments]
        return Program(name, [*self.holder.joined(), *command], DATA, joined=True)

    def _load_own_images(self) -> None:
        tar = DATA / "image.tar"
        dns = {"/coredns": build.path("coredns")}
        self.load_image(archive.write(tar, DNS_IMAGE, files=dns, config={"Entrypoint": ["/coredns"]}))
        links = {name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")}
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
        self.load_image(archive.write(tar, HOST_IMAGE, links=links, config={"Env": [path]}))
        tar.unlink()


def up(*, stays: bool, tell: Tell) -> Cluster:
    """Start a cluster. With `stays` it keeps running; otherwise it ends with this process: by `down`, or, if this
    process is killed, at the next start of a cluster."""
    if os.geteuid() != 0:
        raise Failed("a cluster must be started as root: it creates namespaces, mounts and cgroups")
    build.ensure(tell=tell)
    with _lock(tell):
        if find():
            raise Failed("a cluster is already running; `make kube-down` ends it")
        _clean()
        STATE.mkdir(exist_ok=True)
        _remember(State(owner=record(os.getpid())))
        holder = Holder(NODE, DATA)
        try:
            holder.start()
            holder.connect()
            cluster = Cluster(holder)
            cluster.start(tell)
        except BaseException:
            tell(f"the cluster did not start; its logs are in {DATA} until the next start")
            holder.stop()
            raise
        if stays:
            _remember(State(owner=None))
    return cluster


def find() -> Cluster | None:
    """Return the running cluster, or None. A cluster whose owner process has ended does not count."""
    state = _remembered()
    holder = Holder(NODE, DATA)
    if state is None or not holder.pid() or (state.owner and not runs(state.owner)):
        return None
    return Cluster(holder)


def down() -> None:
    """End the running cluster and remove all its data."""
    with _lock(lambda _: None):
        _clean()


@contextmanager
def borrowed(tell: Tell) -> Iterator[Cluster]:
    """Yield the cluster of `make kube-up`, or start a cluster for the duration of the block. If another process has
    its own cluster, wait until that one ends."""
    announced = False
    while (state := _remembered()) and state.owner and runs(state.owner):
        if not announced:
            tell(f"waiting for the cluster of process {state.owner.pid} to end; `make kube-up` starts one to share")
            announced = True
        time.sleep(1)
    cluster = find()
    if cluster:
        tell("using the cluster that `make kube-up` started")
        yield cluster
        return
    cluster = up(stays=False, tell=tell)
    try:
        yield cluster
    finally:
        down()


@contextmanager
def _lock(tell: Tell) -> Iterator[None]:
    STATE.mkdir(exist_ok=True)
    with (STATE / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("waiting for another process that is starting or ending a cluster")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _clean() -> None:
    """End the cluster and delete its data. The end of the holder process also ends all processes, mounts and links
    of the node."""
    Holder(NODE, DATA).stop()
    (STATE / "cluster.json").unlink(missing_ok=True)
    if DATA.exists():
        shutil.rmtree(DATA)


def _remember(state: State) -> None:
    (STATE / "cluster.json").write_bytes(msgspec.json.encode(state))


def _remembered() -> State | None:
    try:
        return msgspec.json.decode((STATE / "cluster.json").read_bytes(), type=State)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def main() -> int:
    def tell(line: str) -> None:
        print(line, flush=True)

    arguments = sys.argv[1:]
    try:
        if arguments == ["down"]:
            down()
        elif arguments == ["up"]:
            cluster = find() or up(stays=True, tell=tell)
            tell(f"\nThe cluster is up. To use it:\n\n  export KUBECONFIG={cluster.kubeconfig}")
            tell(f"  export PATH={build.cache()}:$PATH\n  kubectl get pods --all-namespaces\n")
            tell(f"NodePorts are on {INSIDE}; logs are in {DATA}; `make kube-down` ends the cluster.")
        elif arguments[:1] == ["load"] and (running := find()):
            for archived in arguments[1:]:
                tell("\n".join(running.load_image(Path(archived))))
        elif arguments[:1] == ["load"]:
            raise Failed("no cluster is running; `make kube-up` starts one")
        else:
            print("usage: python -m tools.kube.cluster up|down|load IMAGE.tar…", file=sys.stderr)
            return 2
    except (Failed, build.BuildFailed, go.NoGo) as failed:
        print(failed, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
