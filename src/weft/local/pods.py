"""All pods of a mesh: the replicas of each Workload, the machine's resources that each pod gets, and the published
ports.

The engine first passes the machine's setup (`begin`), then every Workload (`want`). A pod is an instance of the mesh
from its creation on, but receives calls only while it is ready. Rule: `_free` gives back everything that `_make`
assigns to a pod.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from weft.base.problem import Problem, Severity
from weft.control.plane import ControlPlane
from weft.local.addresses import Addresses
from weft.local.error import LocalError
from weft.local.front_door import FrontDoor
from weft.local.gateway import as_gateway, clear_doorstep, publications
from weft.local.identities import Identities
from weft.local.logs import PodLog
from weft.local.lookups import Lookups
from weft.local.observer import TrafficObserver
from weft.local.pod import LocalPod, PodEnvironment, PodPlan
from weft.local.replicas import Replicas
from weft.local.run_directory import RunDirectory
from weft.local.sidecar import proxy_plan
from weft.local.status import PodSync, WorkloadStatus
from weft.model.instance import Instance
from weft.model.names import ObjectKey, where_of
from weft.model.workload import Workload
from weft.netns.links import Bridge
from weft.netns.namespace import NetworkNamespace
from weft.netns.view import POD_PATH
from weft.node.proxy import SupervisedProxy

log = logging.getLogger("weft.local.pods")

STARTING_AT_ONCE = 4  # pods; a start uses a core for a tenth of a second, and then for as long as its app needs


class MachineSetup(msgspec.Struct, frozen=True, kw_only=True):
    """The machine's resources that all pods of a mesh use: the mesh's run directory, its bridge, and Envoy's executable
    (`binary`)."""

    run_directory: RunDirectory
    bridge: Bridge
    binary: Path  # Envoy


class PodHost(Protocol):
    """The parts of the mesh that pods use and notify; `local/engine.py` implements this protocol."""

    directory: Path
    domain: str
    control: ControlPlane
    addresses: Addresses
    lookups: Lookups
    observer: TrafficObserver

    def vouch(self) -> Identities: ...
    def forget_names(self) -> None: ...
    async def settled(self) -> None: ...


class LocalPods:
    def __init__(self, mesh: PodHost) -> None:
        self._mesh = mesh
        self._ground: MachineSetup | None = None
        self._front_door: FrontDoor | None = None
        self._replicas: dict[ObjectKey, Replicas] = {}
        self._uids: set[int] = set()
        self._slots = asyncio.Semaphore(STARTING_AT_ONCE)
        self._stopping = False

    def begin(self, ground: MachineSetup) -> None:
        """Set the machine's resources (`ground`). Must be called before the first `want`."""
        self._ground = ground
        self._front_door = FrontDoor(ground.binary, ground.run_directory.path, ground.run_directory.doors)

    def want(self, key: ObjectKey, workload: Workload | None) -> None:
        """Set the current version of the Workload `key`; None if it was deleted. Its pods are then started, replaced
        and ended until they match this version."""
        replicas = self._replicas.get(key)
        if replicas is None:
            if workload is None or self._stopping:
                return
            replicas = self._replicas[key] = Replicas(self._make, self._free, self._slots)
        replicas.want(workload)
        self._forget_if_over(key)
        self._publish()

    async def stop(self, within: float) -> None:
        """End all pods. Pods that have not ended after `within` seconds are killed."""
        self._stopping = True
        if self._front_door is not None:
            await self._front_door.close()
        try:
            async with asyncio.timeout(within):
                await asyncio.gather(*(each.stop() for each in self._replicas.values()))
        except TimeoutError:
            log.warning("pods did not end within %.0f s; killing them", within)
            await asyncio.gather(*(each.kill() for each in self._replicas.values()))

    # State

    def all(self) -> list[LocalPod]:
        return [pod for replicas in self._replicas.values() for pod in replicas.pods]

    def find(self, word: str) -> LocalPod:
        """Return the pod with the name `word`, or a pod of the workload with that name, a ready one if there is one.
        `word` may begin with NAMESPACE/. Raises LocalError if there is no such pod."""
        where, _, name = word.rpartition("/")
        near = [pod for pod in self.all() if where in ("", pod.plan.workload.namespace)]
        matches = [pod for pod in near if pod.plan.name == name] or [
            pod for pod in near if pod.plan.workload.name == name
        ]
        if not matches:
            raise LocalError(f"there is no pod or workload `{word}`", "list them with: weft ps")
        return max(matches, key=lambda pod: pod.ready)

    def listening(self, instance: Instance) -> frozenset[int] | None:
        """Return the ports on which an instance listens; None if it does not run on this machine, such as a
        WorkloadEntry."""
        for pod in self.all():
            if (pod.plan.workload.namespace, pod.plan.name) == (instance.namespace, instance.name):
                return pod.listening
        return None

    def status(self, sync: Mapping[str, PodSync]) -> tuple[WorkloadStatus, ...]:
        """Return the status of every workload. `sync` has, by the node id of each connected proxy, whether that
        proxy has the latest config."""
        return tuple(self._workload_status(key, each, sync) for key, each in sorted(self._replicas.items()))

    def _workload_status(self, key: ObjectKey, replicas: Replicas, sync: Mapping[str, PodSync]) -> WorkloadStatus:
        pods = [pod.status(sync) for pod in sorted(replicas.pods, key=lambda pod: pod.plan.name)]
        published = self._front_door.published(str(key)) if self._front_door is not None else ()
        ready = sum(pod.ready for pod in replicas.pods)
        return WorkloadStatus(key.name, key.namespace, replicas.count, ready, tuple(pods), published)

    def problems(self) -> Iterator[Problem]:
        """Yield the problems of all pods: commands that cannot be started, missing identities, ports that are not
        published."""
        for pod in self.all():
            if pod.trouble:
                where = where_of(pod.plan.workload.origin, f"pod {pod.plan.key}")
                yield Problem(where, pod.trouble, "fix the Workload and save it", Severity.ERROR)
        for pod in self.all():
            problem = self._mesh.vouch().problem(pod.plan)
            if problem is not None:
                yield problem
        if self._front_door is not None:
            yield from self._front_door.problems()

    async def settled(self) -> None:
        """Return when the published ports lead to the pods that are ready now."""
        if self._front_door is not None:
            await self._front_door.settled()

    # Resources of a pod

    def _make(self, name: str, workload: Workload) -> LocalPod:
        here, mesh = self._stands().run_directory, self._mesh
        uid = next((uid for uid in here.users if uid not in self._uids), None)
        if uid is None:
            raise LocalError(
                f"no UID is free for the pod: all {len(here.users)} of the mesh are in use", "run fewer pods"
            )
        plan = PodPlan(
            name=name,
            workload=workload,
            addresses=mesh.addresses.pods.take(f"{workload.namespace}/{name}"),
            uid=uid,
        )
        place = PodEnvironment(
            bridge=self._stands().bridge,
            namespace_name=here.namespace_name(workload.namespace, name),
            directory=here.pod(workload.namespace, name),
            visible=(sys.prefix, sys.base_prefix),
            path=POD_PATH,
            domain=mesh.domain,
            identities=mesh.vouch(),
            settled=mesh.settled,
        )
        pod = LocalPod(plan, place, self._make_proxy, self._on_pod)
        self._uids.add(uid)
        mesh.lookups.add(plan.addresses.texts, workload.namespace)
        self._on_pod(pod)
        return pod

    def _make_proxy(
        self, plan: PodPlan, where: NetworkNamespace, directory: Path, changed: Callable[[], None], pod_log: PodLog
    ) -> SupervisedProxy:
        here, identities = self._stands().run_directory, self._mesh.vouch()
        proxy = proxy_plan(
            plan,
            where,
            directory,
            bridge=self._stands().bridge,
            binary=self._stands().binary,
            xds_socket=here.xds_socket,
            sds_socket=identities.socket(plan),
            domain=self._mesh.domain,
        )
        if plan.workload.gateway:
            proxy = as_gateway(proxy, here.doors / str(plan.uid))
        return SupervisedProxy(
            proxy,
            synced=self._mesh.control.wait_synced,
            changed=changed,
            output=pod_log.proxy.pump,
            lacks=partial(identities.lack, plan),
        )

    def _free(self, pod: LocalPod, *, gone: bool) -> None:
        """Give back the resources of a pod that has stopped. With `gone`, also give back its name, addresses and
        log. A completed job keeps these until its Workload is deleted or changed."""
        mesh = self._mesh
        mesh.control.put(_pod_key(pod), ())
        mesh.forget_names()
        mesh.observer.forget(pod)
        self._publish()
        if gone:
            clear_doorstep(pod)
            self._uids.discard(pod.plan.uid)
            mesh.addresses.pods.release(pod.plan.key)
            mesh.lookups.remove(pod.plan.addresses.texts)
            shutil.rmtree(pod.place.directory, ignore_errors=True)
            self._forget_if_over(_workload_key(pod))

    def _forget_if_over(self, key: ObjectKey) -> None:
        replicas = self._replicas.get(key)
        if replicas is not None and not replicas.wanted and not replicas.pods:
            replicas.close()
            del self._replicas[key]

    def _stands(self) -> MachineSetup:
        assert self._ground is not None  # noqa: S101 - Workloads are wanted only after `begin`
        return self._ground

    # Callbacks of pods

    def _on_pod(self, pod: LocalPod) -> None:
        instance, control = pod.instance(), self._mesh.control
        if not pod.ended and control.mesh.get(_pod_key(pod)) != (instance,):
            control.put(_pod_key(pod), (instance,))
            self._mesh.forget_names()
        replicas = self._replicas.get(_workload_key(pod))
        if replicas is not None:
            replicas.wake()
        self._publish()

    def _publish(self) -> None:
        """Pass the published ports, and the pods that serve them now, to the front door (`front_door.py`: the Envoy
        that publishes the ports of gateways on this machine)."""
        if self._front_door is not None:
            values = self._mesh.control.mesh.get
            published = (publications(key, values(key), each.pods) for key, each in self._replicas.items())
            self._front_door.want([each for some in published for each in some])


def _pod_key(pod: LocalPod) -> ObjectKey:
    return ObjectKey("Pod", pod.plan.workload.namespace, pod.plan.name)


def _workload_key(pod: LocalPod) -> ObjectKey:
    return ObjectKey("Workload", pod.plan.workload.namespace, pod.plan.workload.name)
