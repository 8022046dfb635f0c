"""Reads the rollout status of a Deployment, StatefulSet or DaemonSet. The status of an unfinished rollout contains
the reason, taken from a pod that does not start. The module also restarts all pods of a workload, like `kubectl
rollout restart`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime

import msgspec

from weft.kube.client import Client, PatchType
from weft.kube.resource import PODS, ResourceKind

_LOOK_SECONDS = 0.5
_RESTARTED = "kubectl.kubernetes.io/restartedAt"
# Reasons for which a container waits while it starts normally.
_NORMAL = frozenset({"", "ContainerCreating", "PodInitializing"})


class Rollout(msgspec.Struct, frozen=True):
    """The rollout status of a workload: whether it is done, and how many pods are ready and wanted. `trouble`: the
    message of kubelet or the scheduler about a pod that does not start."""

    done: bool
    ready: int
    wanted: int
    trouble: str = ""

    def __str__(self) -> str:
        trouble = f": {self.trouble}" if self.trouble else ""
        return f"{self.ready} of {self.wanted} ready{trouble}"


async def rollout(client: Client, resource: ResourceKind, namespace: str, name: str) -> Rollout:
    workload = await client.get(resource, name, _Workload, namespace=namespace)
    status, wanted = workload.status, workload.wanted(resource.kind)
    updated = status.updated_number_scheduled if resource.kind == "DaemonSet" else status.updated_replicas
    ready = status.number_available if resource.kind == "DaemonSet" else status.available_replicas
    total = status.current_number_scheduled if resource.kind == "DaemonSet" else status.replicas
    seen = status.observed_generation >= workload.metadata.generation
    if resource.kind == "StatefulSet":
        ready = status.ready_replicas
    done = seen and updated >= wanted and min(ready, updated) >= wanted and total <= wanted
    if done:
        return Rollout(done=True, ready=wanted, wanted=wanted)
    trouble = await _trouble(client, namespace, workload.selector) if seen else ""
    return Rollout(done=False, ready=min(ready, updated) if seen else 0, wanted=wanted, trouble=trouble)


async def follow(client: Client, resource: ResourceKind, namespace: str, name: str) -> AsyncGenerator[Rollout, None]:
    """Yield the rollout status of a workload at each change, until the rollout is done. The caller sets a deadline."""
    before: Rollout | None = None
    while True:
        now = await rollout(client, resource, namespace, name)
        if now != before:
            yield now
        if now.done:
            return
        before = now
        await asyncio.sleep(_LOOK_SECONDS)


async def restart(client: Client, resource: ResourceKind, namespace: str, name: str) -> None:
    annotations = {_RESTARTED: datetime.now(UTC).isoformat(timespec="seconds")}
    patch = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    await client.patch(resource, name, patch, namespace=namespace, patch_type=PatchType.MERGE, manager="weft")


class _Camel(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _Metadata(_Camel, frozen=True):
    name: str
    generation: int = 0


class _Selector(_Camel, frozen=True):
    match_labels: dict[str, str] = {}


class _Spec(_Camel, frozen=True):
    replicas: int = 1
    selector: _Selector = _Selector()


class _Status(_Camel, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    ready_replicas: int = 0
    desired_number_scheduled: int = 0
    current_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_available: int = 0


class _Workload(_Camel, frozen=True):
    metadata: _Metadata
    spec: _Spec
    status: _Status = _Status()

    def wanted(self, kind: str) -> int:
        return self.status.desired_number_scheduled if kind == "DaemonSet" else self.spec.replicas

    @property
    def selector(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.spec.selector.match_labels.items())


class _Condition(_Camel, frozen=True):
    type: str
    status: str
    message: str = ""


class _Waiting(_Camel, frozen=True):
    reason: str = ""
    message: str = ""


class _State(_Camel, frozen=True):
    waiting: _Waiting | None = None


class _Container(_Camel, frozen=True):
    name: str
    state: _State = _State()


class _PodStatus(_Camel, frozen=True):
    conditions: tuple[_Condition, ...] = ()
    init_container_statuses: tuple[_Container, ...] = ()
    container_statuses: tuple[_Container, ...] = ()


class _Pod(_Camel, frozen=True):
    metadata: _Metadata
    status: _PodStatus = _PodStatus()


async def _trouble(client: Client, namespace: str, selector: str) -> str:
    """Return why a pod does not start: the first failing pod among those that the label selector `selector` selects. ""
    if no pod fails."""
    for pod in (await client.list(PODS, _Pod, namespace=namespace, labels=selector)).items:
        for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
            waiting = container.state.waiting
            if waiting is not None and waiting.reason not in _NORMAL:
                message = f" ({waiting.message})" if waiting.message else ""
                return f"{pod.metadata.name}: {container.name} {waiting.reason}{message}"
        for condition in pod.status.conditions:
            if condition.type == "PodScheduled" and condition.status == "False" and condition.message:
                return f"{pod.metadata.name} is not scheduled: {condition.message}"
    return ""
