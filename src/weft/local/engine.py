"""A mesh on one machine: joins the watched directory, the control plane, the pods, DNS and the mesh's own socket.

`start` returns once everything stands and the first files are read; `stop` takes all of it away again, in any state and
within bounded time. Rule: whatever is made has its place in `stop`, and the run directory's release sweeps the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from weft.base.problem import Problem, Severity
from weft.ca.error import AuthorityError
from weft.ca.status import AuthorityStatus
from weft.control.debug import Debug
from weft.control.memory import Memory
from weft.control.plane import ControlPlane
from weft.envoy import binary
from weft.envoy.binary import EnvoyError
from weft.files.watch import DirectoryMissing, watch
from weft.local import access_log, run_directory
from weft.local.addresses import Addresses
from weft.local.blocking import to_its_end
from weft.local.dns import PROXY_PORT, Dns
from weft.local.error import LocalError
from weft.local.front_door import FrontDoor
from weft.local.gateway import clear_doorstep, gateway_plan, publications
from weft.local.identities import Identities, Trust
from weft.local.logs import PodLog
from weft.local.lookups import Lookups
from weft.local.observer import Observer
from weft.local.pod import Place, Pod, PodPlan
from weft.local.replicas import Replicas
from weft.local.run_directory import RunDirectory
from weft.local.server import Server
from weft.local.sidecar import proxy_plan
from weft.local.status import MeshStatus, Sync, WorkloadStatus
from weft.local.virtual_addresses import VirtualAddresses
from weft.model.group import group_of
from weft.model.instance import Instance
from weft.model.names import ObjectKey, where_of
from weft.model.on_demand import OnDemand
from weft.model.proxy import PROXY_GID
from weft.model.settings import Settings
from weft.model.value import Value
from weft.model.workload import Workload
from weft.netns import links, namespace
from weft.netns.links import Bridge
from weft.netns.namespace import Namespace, NetworkError, ipv6_available
from weft.netns.view import POD_PATH
from weft.node.proxy import Proxy
from weft.xds.server import ListenError

log = logging.getLogger("weft.local.engine")

STARTING_AT_ONCE = 4  # pods; each start keeps a core busy for a tenth of a second
_STOP_TIMEOUT = 20.0  # seconds for pods to end in good order; then their processes are killed
_ACK_TIMEOUT = 1.0
_OPEN_FILES = 65_536
# Kinds that say what becomes of calls, and nothing of what names and addresses mean.
_ABOUT_CALLS = frozenset(
    {"VirtualService", "DestinationRule", "AuthorizationPolicy", "RequestAuthentication", "PeerAuthentication"}
)


class Engine:
    def __init__(
        self,
        directory: Path,
        *,
        name: str = "default",
        domain: str = "cluster.local",
        trust: Trust = Trust(),  # noqa: B008 - a frozen value
        history: Path | None = None,
    ) -> None:
        """`history`: a private directory in which its past is written down; without one it ends with the mesh."""
        self.directory = directory.absolute()
        self.name = name
        self.domain = domain
        self.trust = trust
        self.started = time.time()
        self.ending = asyncio.Event()  # asked for over the socket, or it cannot go on; its runner calls `stop`
        self.failure: LocalError | None = None  # why it cannot go on
        self.addresses = Addresses(ipv6=ipv6_available())
        memory = Memory(history, domain=domain, admit=self.addresses.readmit) if history is not None else None
        self.control = ControlPlane(domain=domain, admit=self._admit, replica=name, memory=memory)
        self.control.listening = self._listening
        self.observer = Observer(self)
        self._run_directory: RunDirectory | None = None
        self._bridge: Bridge | None = None
        self._binary = Path()
        self._lookups = Lookups(self.control.mesh, domain)
        self._dns = Dns(self._lookups.for_pod, found=self._about_to_call)
        self._proxy_dns = Dns(self._lookups.for_proxy)
        self._server = Server(self)
        self._identities: Identities | None = None  # from the first look at the files on, which say the trust domain
        self._virtual_addresses = VirtualAddresses(self.control.mesh)
        self._front_door: FrontDoor | None = None  # as soon as there is a directory for it
        self._replicas: dict[ObjectKey, Replicas] = {}
        self._uids: set[int] = set()
        self._slots = asyncio.Semaphore(STARTING_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loaded = asyncio.Event()  # the files have been read once
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    @property
    def debug(self) -> Debug:
        return self.control.debug

    # Running it

    async def run(self) -> None:
        """Start it, wait until somebody asks for its end, and stop it. Raises LocalError if it ended by itself."""
        try:
            await self.start()
            await self.ending.wait()
        finally:
            await self.stop()
        if self.failure is not None:
            raise self.failure

    async def start(self) -> None:
        """Raises LocalError, with nothing left behind, if it cannot."""
        self._starting = asyncio.create_task(self._start())
        try:
            await self._starting
        except (NetworkError, EnvoyError, AuthorityError) as error:
            problem = error.problem
            self.failure = LocalError(problem.what, problem.hint, where=str(problem.where))
            await self.stop()
            raise self.failure from error
        except (DirectoryMissing, ListenError) as error:
            self.failure = LocalError(str(error))
            await self.stop()
            raise self.failure from error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Idempotent; a second caller waits for the first. Being cancelled meanwhile does not end it half-way."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _start(self) -> None:
        self._binary = binary.find()
        _allow_many_files()
        self._run_directory = here = run_directory.acquire(self.name, str(self.directory))
        ipv4, ipv6 = self.addresses.bridge
        self._front_door = FrontDoor(self._binary, here.path, here.doors)
        self._bridge = Bridge(Namespace(here.namespace_name("mesh")), ipv4, ipv6)
        await to_its_end(partial(_make_bridge, self._bridge))
        servers = [str(each.ip) for each in (ipv4, ipv6) if each]
        await self._dns.listen(self._bridge.namespace, servers)
        await self._proxy_dns.listen(self._bridge.namespace, servers, PROXY_PORT)
        await self.control.listen(f"unix:{here.xds_socket}")
        # Only the proxies' user may ask; an app in the same pod may not.
        os.chown(here.xds_socket, 0, PROXY_GID)
        here.xds_socket.chmod(0o660)
        await self.control.listen(f"unix:{here.owner_socket}", owned=True)
        await self._server.listen(here.api_socket)
        self.control.on_change.append(self._on_change)
        watching = self._keep(self._watch())
        loading = asyncio.create_task(self._loaded.wait())
        await asyncio.wait({watching, loading}, return_when=asyncio.FIRST_COMPLETED)
        loading.cancel()
        if watching.done():
            watching.result()
        self._keep(self.observer.run())
        self._keep(self._virtual_addresses.keep(self._bridge.namespace))

    async def _stop(self) -> None:
        self.ending.set()
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait({self._starting})
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=_STOP_TIMEOUT)
        if self._front_door is not None:
            await self._front_door.close()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT):
                await asyncio.gather(*(each.stop() for each in self._replicas.values()))
        except TimeoutError:
            log.warning("pods did not end within %.0f s; killing them", _STOP_TIMEOUT)
            await asyncio.gather(*(each.kill() for each in self._replicas.values()))
        await self._server.close()
        if self._identities is not None:
            await self._identities.close()
        await self._dns.close()
        await self._proxy_dns.close()
        await self.control.close()
        if self._run_directory is not None:
            await to_its_end(self._run_directory.release)

    def _keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)
        return task

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._starting is None or not self._starting.done():
            return  # `start` raises what the first look at the files came to
        if not task.cancelled() and task.exception() is not None and self._stopping is None:
            error = task.exception()
            log.error("the mesh cannot go on", exc_info=error)
            self.failure = LocalError(f"mesh {self.name} could not go on: {error!r}", "please report it, with its log")
            self.ending.set()

    # Files → control plane → pods

    async def _watch(self) -> None:
        async with aclosing(watch(self.directory)) as batches:
            async for batch in batches:
                self.control.apply(batch.changes, batch.problems)
                self._vouch()
                self._loaded.set()

    def _admit(self, value: Value) -> Value:
        if isinstance(value, Settings):
            value, problems = access_log.writable(value)
            self.control.note("access log", problems)
            return value if self._identities is None else self._same_trust_domain(value, self._identities.trust_domain)
        return self.addresses.admit(value)

    def _on_change(self, changed: frozenset[ObjectKey]) -> None:
        self._vouch()
        if any(key.kind not in _ABOUT_CALLS for key in changed):
            self._forget_names()
        for key in changed:
            if key.kind == "Workload":
                values = self.control.mesh.get(key)
                self._want(key, values[0] if values and isinstance(values[0], Workload) else None)
        if not self.control.mesh.settings.origin:  # the object that asked for it is gone
            self.control.note("access log", ())
            self._keep_trust_domain(changed)
        if any(key.kind in ("Service", "ServiceEntry") for key in changed):
            self.control.note("addresses", self.addresses.keep_services(self.control.mesh.services()))

    def _vouch(self) -> Identities:
        """Who vouches for the pods; made when the files have been read, and before the first pod is."""
        if self._identities is None:
            here = self._run_directory
            assert here is not None  # noqa: S101 - files are read only after it is made
            trust_domain = self.control.mesh.settings.trust_domain
            self._identities = Identities(here.secrets, trust_domain, self.trust)
            self._identities.start()
        return self._identities

    def _same_trust_domain(self, settings: Settings, running: str) -> Settings:
        """Every certificate there is says the trust domain, and every proxy asks for it: it is one mesh's for life."""
        if settings.trust_domain == running:
            self.control.note("trust domain", ())
            return settings
        what = f"the trust domain of a running mesh stays {running}; `{settings.trust_domain}` is for the next one"
        where = where_of(settings.origin, "" if settings.origin else "mesh configuration")
        hint = f"weft down {self.name}, then weft up again"
        self.control.note("trust domain", [Problem(where, what, hint, Severity.WARNING)])
        return msgspec.structs.replace(settings, trust_domain=running)

    def _keep_trust_domain(self, changed: frozenset[ObjectKey]) -> None:
        """The object that said it is gone: what it said of the trust domain stays, in its place."""
        settings, running = self.control.mesh.settings, self._vouch().trust_domain
        gone = next((key for key in changed if key.kind == "ConfigMap" and not self.control.mesh.get(key)), None)
        if settings.trust_domain != running and gone is not None:
            self.control.put(gone, (msgspec.structs.replace(settings, trust_domain=running),))
            self._same_trust_domain(settings, running)

    def _want(self, key: ObjectKey, workload: Workload | None) -> None:
        replicas = self._replicas.get(key)
        if replicas is None:
            if workload is None or self._stopping is not None:
                return
            replicas = self._replicas[key] = Replicas(self._make_pod, self._free_pod, self._slots)
        replicas.want(workload)
        self._forget_if_over(key)
        self._publish()

    def _forget_if_over(self, key: ObjectKey) -> None:
        replicas = self._replicas.get(key)
        if replicas is not None and not replicas.wanted and not replicas.pods:
            replicas.close()
            del self._replicas[key]

    def _make_pod(self, name: str, workload: Workload) -> Pod:
        here, bridge = self._run_directory, self._bridge
        assert here is not None and bridge is not None  # noqa: S101 - files are read only after both are made
        uid = next((uid for uid in here.users if uid not in self._uids), None)
        if uid is None:
            raise LocalError(f"no user is left: all {len(here.users)} of the mesh are taken", "run fewer pods")
        plan = PodPlan(
            name=name,
            workload=workload,
            addresses=self.addresses.pods.take(f"{workload.namespace}/{name}"),
            uid=uid,
        )
        place = Place(
            bridge=bridge,
            namespace_name=here.namespace_name(workload.namespace, name),
            directory=here.pod(workload.namespace, name),
            visible=(str(self.directory), sys.prefix, sys.base_prefix),
            path=POD_PATH,
            domain=self.domain,
            identities=self._vouch(),
            settled=self.settled,
        )
        pod = Pod(plan, place, self._make_proxy, self._on_pod)
        self._uids.add(uid)
        self._lookups.add(plan.addresses.texts, workload.namespace)
        self._on_pod(pod)
        return pod

    def _free_pod(self, pod: Pod, *, gone: bool) -> None:
        """It runs no more. A job that has completed keeps its name and its log until it is gone."""
        self.control.put(_pod_key(pod), ())
        self._forget_names()
        self.observer.forget(pod)
        self._publish()
        if gone:
            clear_doorstep(pod)
            self._uids.discard(pod.plan.uid)
            self.addresses.pods.release(pod.plan.key)
            self._lookups.remove(pod.plan.addresses.texts)
            shutil.rmtree(pod.place.directory, ignore_errors=True)
            self._forget_if_over(_workload_key(pod))

    def _make_proxy(
        self, plan: PodPlan, where: Namespace, directory: Path, changed: Callable[[], None], pod_log: PodLog
    ) -> Proxy:
        here, bridge, identities = self._run_directory, self._bridge, self._vouch()
        assert here is not None and bridge is not None  # noqa: S101 - pods are made only after both
        kind = partial(gateway_plan, doorstep=here.doors / str(plan.uid)) if plan.workload.gateway else proxy_plan
        proxy = kind(
            plan,
            where,
            directory,
            bridge=bridge,
            binary=self._binary,
            xds_socket=here.xds_socket,
            sds_socket=identities.socket(plan),
            domain=self.domain,
        )
        return Proxy(
            proxy,
            synced=self.control.wait_synced,
            changed=changed,
            output=pod_log.proxy.pump,
            lacks=partial(identities.lack, plan),
        )

    def _on_pod(self, pod: Pod) -> None:
        """The mesh sees every pod from its first moment on, but calls only those that are ready."""
        instance = pod.instance()
        if not pod.ended and self.control.mesh.get(_pod_key(pod)) != (instance,):
            self.control.put(_pod_key(pod), (instance,))
            self._forget_names()
        replicas = self._replicas.get(_workload_key(pod))
        if replicas is not None:
            replicas.wake()
        self._publish()

    def _publish(self) -> None:
        """Tell the front door what of this machine leads to which pods now."""
        if self._front_door is not None:
            workloads = ((key, self.control.mesh.get(key), each.pods) for key, each in self._replicas.items())
            self._front_door.want([each for found in workloads for each in publications(*found)])

    async def settled(self) -> None:
        """Returns once every proxy, and the bridge's rules, know of the last change, or do not answer for a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ACK_TIMEOUT):
                await self.control.pushed()
                nodes = [proxy.node_id for proxy in self.control.proxies()]
                if self._front_door is not None:
                    await self._front_door.settled()
                await asyncio.gather(
                    self._virtual_addresses.settled(),
                    *(self.control.wait_synced(node, _ACK_TIMEOUT) for node in nodes),
                )

    # What pods ask

    def _forget_names(self) -> None:
        """Services or pods have changed: what names and addresses mean is found out anew."""
        self._lookups.forget()
        self._virtual_addresses.changed()

    def _about_to_call(self, addresses: Sequence[str], asker: str) -> None:
        """Nobody waits for it: a call that is sooner is held."""
        if self.control.mesh.settings.on_demand is not OnDemand.OFF:
            found = (pod for pod in self.pods() if asker in pod.plan.addresses.texts)
            for pod in found:
                self.control.expect(group_of(pod.plan.workload), addresses)

    # What people ask

    def pods(self) -> list[Pod]:
        return [pod for replicas in self._replicas.values() for pod in replicas.pods]

    def find_pod(self, word: str) -> Pod:
        """A pod by its name, or a ready one of a workload; NAMESPACE/ may precede either."""
        where, _, name = word.rpartition("/")
        near = [pod for pod in self.pods() if where in ("", pod.plan.workload.namespace)]
        found = [pod for pod in near if pod.plan.name == name] or [
            pod for pod in near if pod.plan.workload.name == name
        ]
        if not found:
            raise LocalError(f"there is no pod or workload `{word}`", "list them with: weft ps")
        return max(found, key=lambda pod: pod.ready)

    def status(self) -> MeshStatus:
        self.observer.look()
        sync = {proxy.node_id: Sync(proxy.sync.value) for proxy in self.control.proxies()}
        return MeshStatus(
            name=self.name,
            directory=str(self.directory),
            pid=os.getpid(),
            started=self.started,
            workloads=tuple(self._workload_status(key, each, sync) for key, each in sorted(self._replicas.items())),
            edges=self.observer.traffic.edges(),
            problems=self.problems(),
            push=self.control.pushes,
            objects=self._objects() if self._loaded.is_set() else None,
            is_checked=not self.control.analyzing,
            is_told=not self.control.pending and Sync.STALE not in sync.values(),
        )

    def _workload_status(self, key: ObjectKey, replicas: Replicas, sync: dict[str, Sync]) -> WorkloadStatus:
        pods = [pod.status(sync) for pod in sorted(replicas.pods, key=lambda pod: pod.plan.name)]
        published = self._front_door.published(str(key)) if self._front_door is not None else ()
        ready = sum(pod.ready for pod in replicas.pods)
        return WorkloadStatus(key.name, key.namespace, replicas.count, ready, tuple(pods), published)

    def _objects(self) -> int:
        return sum(key.kind != "Pod" for key, _ in self.control.mesh.values())

    def problems(self) -> tuple[Problem, ...]:
        published = self._front_door.problems() if self._front_door is not None else ()
        return (
            *self.control.problems(),
            *self._ca_problems(),
            *self._pod_problems(),
            *self._identity_problems(),
            *published,
        )

    def ca_status(self) -> AuthorityStatus:
        return self._vouch().authority.status()

    def rotate_ca(self, propagation: timedelta | None = None) -> AuthorityStatus:
        """Begin to move to a new root. Raises AuthorityError."""
        return self._vouch().rotate(propagation)

    def _listening(self, instance: Instance) -> frozenset[int] | None:
        """None for whoever is not run here, such as a WorkloadEntry."""
        for pod in self.pods():
            if (pod.plan.workload.namespace, pod.plan.name) == (instance.namespace, instance.name):
                return pod.listening
        return None

    def _pod_problems(self) -> list[Problem]:
        """Commands that cannot even be started are as wrong as YAML that cannot be read."""
        found = []
        for pod in self.pods():
            if pod.trouble:
                where = where_of(pod.plan.workload.origin, f"pod {pod.plan.key}")
                found.append(Problem(where, pod.trouble, "mend the Workload and save it", Severity.ERROR))
        return found

    def _ca_problems(self) -> tuple[Problem, ...]:
        return () if self._identities is None else self._identities.ca_problems()

    def _identity_problems(self) -> list[Problem]:
        found = [self._identities.problem(pod.plan) for pod in self.pods()] if self._identities is not None else []
        return [problem for problem in found if problem is not None]


def _make_bridge(bridge: Bridge) -> None:
    namespace.make(bridge.namespace.name)
    links.make_bridge(bridge)


def _allow_many_files() -> None:
    """Each connection is a file, and Envoys and apps inherit our limit: the usual 1,024 are soon used up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _pod_key(pod: Pod) -> ObjectKey:
    return ObjectKey("Pod", pod.plan.workload.namespace, pod.plan.name)


def _workload_key(pod: Pod) -> ObjectKey:
    return ObjectKey("Workload", pod.plan.workload.namespace, pod.plan.workload.name)
