"""Installs weft on the test cluster for the rigs that need running pods. weft is installed from an image of this
checkout, with `weft install`, as users do. The rigs call weft and its proxies from inside the node's and the
pods' network namespaces.

All rigs of a run share one cluster: the cluster of `make kube-up` if it runs, otherwise one that ends with the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

import msgspec
from tools.kube.cluster import HOST_IMAGE, Cluster, borrowed

from bench.figure import Say
from bench.process import Failed
from tools import image
from tools.kube import cluster as clusters
from tools.kube import process as programs
from weft.kube.client import Client
from weft.kube.config import load
from weft.kube.error import ApiError
from weft.kube.reflector import reflect
from weft.kube.resource import NAMESPACES, PODS, SERVICE_ACCOUNTS
from weft.netns import namespace as network

ROOT = "istio-system"
_PARTS = ("deployment/weft-control", "daemonset/weft-node")
_PATIENCE = 120.0
_numbers = itertools.count(1)

Object = dict[str, Any]


@contextlib.contextmanager
def cluster(say: Say) -> Iterator[None]:
    """Provide a cluster with weft of this checkout for the duration of the block."""
    try:
        with borrowed(say) as running:
            say("installing weft on the cluster")
            before = running.kubectl("get", "pods", f"--namespace={ROOT}", "-o", "name")
            running.load_image(image.build())
            _weft(running, "install", "--set", "imagePullPolicy=Never")
            if before:  # the running pods may use an older image of the same name
                running.kubectl("rollout", "restart", f"--namespace={ROOT}", *_PARTS)
                for part in _PARTS:
                    running.kubectl("rollout", "status", f"--namespace={ROOT}", part, "--timeout=180s")
            yield
    except programs.Failed as failed:
        raise Failed(str(failed)) from failed


@contextlib.contextmanager
def revision(name: str, *values: str) -> Iterator[None]:
    """Install a second revision of weft with these `--set` values for the duration of the block."""
    options = [word for value in ("imagePullPolicy=Never", *values) for word in ("--set", value)]
    _weft(running_cluster(), "install", "--revision", name, *options)
    try:
        yield
    finally:
        _weft(running_cluster(), "uninstall", "--revision", name, "--force", "--yes")


def _weft(running: Cluster, *words: str) -> None:
    environment = {**os.environ, "KUBECONFIG": str(running.kubeconfig)}
    command = [sys.executable, "-m", "weft.cli", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"weft {words[0]}: {done.stdout}{done.stderr}")


class Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class ContainerState(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    container_id: str = msgspec.field(default="", name="containerID")


class Status(msgspec.Struct, frozen=True, rename="camel"):
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: list[Condition] = []
    container_statuses: list[ContainerState] = []
    init_container_statuses: list[ContainerState] = []

    @property
    def ready(self) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in self.conditions)

    def container(self, name: str) -> str:
        """Return the containerd id of the container, or an empty string if it has none yet."""
        matches = (each for each in (*self.container_statuses, *self.init_container_statuses) if each.name == name)
        return next((each.container_id.partition("://")[2] for each in matches), "")


class _Pod(msgspec.Struct, frozen=True):
    status: Status = Status()


class Pods:
    """The pods of a namespace from a watch: each pod's latest status, and when its Ready condition last became true
    or false."""

    def __init__(self) -> None:
        self.statuses: dict[str, Status] = {}
        self.changed = asyncio.Event()
        self._turned: dict[tuple[str, bool], float] = {}

    async def follow(self, client: Client, namespace: str) -> None:
        """Watch the pods of the namespace until the task is cancelled."""
        async with aclosing(reflect(client, PODS, _Pod, namespace=namespace)) as batches:
            async for batch in batches:
                now = time.monotonic()
                for event in batch:
                    self._take(event.name, event.object.status if event.object else None, now)
                self.changed.set()
                self.changed = asyncio.Event()

    def _take(self, name: str, status: Status | None, now: float) -> None:
        before = self.statuses.pop(name, None)
        if status is None:
            return
        self.statuses[name] = status
        if before is None or before.ready != status.ready:
            self._turned[name, status.ready] = now

    async def until_ready(self, name: str, *, ready: bool = True) -> float:
        """Wait until the pod is ready (or with `ready=False`, not ready). Return the time at which this process
        received that status from the API server."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while name not in self.statuses or self.statuses[name].ready != ready:
                    await self.changed.wait()
        except TimeoutError as late:
            raise Failed(f"pod {name} is {'not ready' if ready else 'still ready'} after {_PATIENCE:.0f} s") from late
        return self._turned[name, ready]


class Namespace(msgspec.Struct, frozen=True):
    """A namespace that a rig created, with a client and a watch of its pods."""

    name: str
    client: Client
    pods: Pods

    async def create(self, manifest: Object) -> None:
        await self.client.create(PODS, manifest, namespace=self.name)


@contextlib.asynccontextmanager
async def namespace(
    client: Client, word: str, *, injected: bool = True, revision: str = ""
) -> AsyncGenerator[Namespace, None]:
    """Create a namespace for the duration of the block. Its pods are injected by `revision`, or by the default
    revision if none is given; with `injected=False`, they are not injected."""
    name = f"bench-{word}-{os.getpid()}-{next(_numbers)}"
    labels = {"istio.io/rev": revision} if revision else {"istio-injection": "enabled"} if injected else {}
    await client.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
    pods = Pods()
    following = asyncio.create_task(pods.follow(client, name))
    try:
        await _account(client, name)
        yield Namespace(name, client, pods)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await client.delete(NAMESPACES, name)
        # The pods need the revision's node agent to terminate, and the caller may uninstall the revision next.
        if revision:
            await _until_deleted(client, name)


async def _account(client: Client, name: str) -> None:
    """Wait until a controller has created the service account `default`. Without it no pod can be created."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(ApiError):
            await client.get(SERVICE_ACCOUNTS, "default", namespace=name)
            return
        await asyncio.sleep(0.05)
    raise Failed(f"namespace {name} has no service account `default` after {_PATIENCE:.0f} s")


async def _until_deleted(client: Client, name: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        try:
            await client.get(NAMESPACES, name)
        except ApiError as error:
            if error.not_found:
                return
            raise
        await asyncio.sleep(0.2)
    raise Failed(f"namespace {name} still exists after {_PATIENCE:.0f} s")


def pod(name: str, **more: Any) -> Object:
    """Return the manifest of a pod that only sleeps. It uses the programs of the node's /usr, so its start time is
    what any pod's start costs."""
    mount = {"name": "usr", "mountPath": "/usr", "readOnly": True}
    container = {"name": "app", "image": HOST_IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "infinity"]}
    # The proxy's CPU request is small, so that many pods fit on the node.
    metadata = {"name": name, "labels": {"app": name}, "annotations": {"sidecar.istio.io/proxyCPU": "10m"}}
    return {
        "metadata": metadata,
        "spec": {
            "containers": [{**container, "volumeMounts": [mount]}],
            "volumes": [{"name": "usr", "hostPath": {"path": "/usr", "type": "Directory"}}],
            "terminationGracePeriodSeconds": 1,
            **more,
        },
    }


def running_cluster() -> Cluster:
    running = clusters.find()
    if running is None:
        raise Failed("no cluster is running; `make bench-kube` starts one")
    return running


def client() -> Client:
    return Client(load(running_cluster().kubeconfig))


def node_network(running: Cluster) -> network.NetworkNamespace:
    return network.NetworkNamespace(f"/proc/{running.holder.pid()}/ns/net")


def pod_network(running: Cluster, status: Status, container: str) -> network.NetworkNamespace:
    """Return the network namespace of a pod, found by the first process of one of its containers. The node has its
    own PID namespace, so the path goes through the node's /proc."""
    wanted = status.container(container)
    tasks = running.holder.run("ctr", "-n", "k8s.io", "tasks", "ls").stdout.splitlines()
    process = next((words[1] for line in tasks if (words := line.split())[0] == wanted), "")
    if not process:
        raise Failed(f"containerd has no task for container {wanted!r}")
    return network.NetworkNamespace(f"/proc/{running.holder.pid()}/root/proc/{process}/ns/net")
