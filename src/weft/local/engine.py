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
import time
from collections.abc import Coroutine, Sequence
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from weft.base.problem import Problem
from weft.ca.error import AuthorityError
from weft.ca.status import AuthorityStatus
from weft.control.plane import ControlPlane
from weft.envoy import binary
from weft.envoy.binary import EnvoyError
from weft.files.watch import DirectoryMissing, watch
from weft.history.persistence import Memory
from weft.inspect.attach import attach_debug
from weft.local import run_directory
from weft.local.addresses import Addresses
from weft.local.admission import LocalAdmission
from weft.local.blocking import to_its_end
from weft.local.dns import PROXY_PORT, DnsServer
from weft.local.error import LocalError
from weft.local.identities import Identities, Trust
from weft.local.lookups import Lookups
from weft.local.observer import TrafficObserver
from weft.local.pod import LocalPod
from weft.local.pods import LocalPods, MachineSetup
from weft.local.run_directory import RunDirectory
from weft.local.server import MeshServer
from weft.local.status import MeshStatus, PodSync
from weft.local.virtual_addresses import VirtualAddresses
from weft.model.group import group_of
from weft.model.names import ObjectKey
from weft.model.on_demand import OnDemand
from weft.model.proxy import PROXY_GID
from weft.model.workload import Workload
from weft.netns import links, namespace
from weft.netns.links import Bridge
from weft.netns.namespace import NetworkError, NetworkNamespace, ipv6_available
from weft.xds.server import ListenError

log = logging.getLogger("weft.local.engine")

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
        self.ending = asyncio.Event()  # it cannot go on: its runner calls `stop`
        self.failure: LocalError | None = None  # why it cannot go on
        self.addresses = Addresses(ipv6=ipv6_available())
        memory = Memory(history, domain=domain, admit=self.addresses.readmit) if history is not None else None
        self._admission = LocalAdmission(self)
        self.control = ControlPlane(domain=domain, admit=self._admission.admit, replica=name, memory=memory)
        self.debug = attach_debug(self.control)
        self.observer = TrafficObserver(self)
        self.lookups = Lookups(self.control.mesh, domain)
        self._pods = LocalPods(self)
        self.control.listening = self._pods.listening
        self._run_directory: RunDirectory | None = None
        self._dns = DnsServer(self.lookups.for_pod, found=self._about_to_call)
        self._proxy_dns = DnsServer(self.lookups.for_proxy)
        self._server = MeshServer(self)
        self._identities: Identities | None = None  # from the first look at the files on, which say the trust domain
        self._virtual_addresses = VirtualAddresses(self.control.mesh)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loaded = asyncio.Event()  # the files have been read once
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    # Running it

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
        envoy = binary.find()
        _allow_many_files()
        self._run_directory = here = run_directory.acquire(self.name, str(self.directory))
        ipv4, ipv6 = self.addresses.bridge
        bridge = Bridge(NetworkNamespace(here.namespace_name("mesh")), ipv4, ipv6)
        await to_its_end(partial(_make_bridge, bridge))
        self._pods.begin(MachineSetup(run_directory=here, bridge=bridge, binary=envoy))
        servers = [str(each.ip) for each in (ipv4, ipv6) if each]
        await self._dns.listen(bridge.namespace, servers)
        await self._proxy_dns.listen(bridge.namespace, servers, PROXY_PORT)
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
        self._keep(self._virtual_addresses.keep(bridge.namespace))

    async def _stop(self) -> None:
        self.ending.set()
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait({self._starting})
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=_STOP_TIMEOUT)
        await self._pods.stop(_STOP_TIMEOUT)
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
        async with aclosing(watch(self.directory, reader=self.control.reader)) as batches:
            async for batch in batches:
                self.control.apply(batch.changes, batch.problems)
                self.vouch()
                self._loaded.set()

    def _on_change(self, changed: frozenset[ObjectKey]) -> None:
        self.vouch()
        if any(key.kind not in _ABOUT_CALLS for key in changed):
            self.forget_names()
        for key in changed:
            if key.kind == "Workload":
                values = self.control.mesh.get(key)
                self._pods.want(key, values[0] if values and isinstance(values[0], Workload) else None)
        self._admission.on_change(changed)

    def vouch(self) -> Identities:
        """Who vouches for the pods; made when the files have been read, and before the first pod is."""
        if self._identities is None:
            here = self._run_directory
            assert here is not None  # noqa: S101 - files are read only after it is made
            self._identities = Identities(here.secrets, self._admission.fix_trust_domain(), self.trust)
            self._identities.start()
        return self._identities

    async def settled(self) -> None:
        """Returns once every proxy, and the bridge's rules, know of the last change, or do not answer for a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ACK_TIMEOUT):
                await self.control.pushed()
                nodes = [proxy.node_id for proxy in self.control.proxies()]
                await self._pods.settled()
                await asyncio.gather(
                    self._virtual_addresses.settled(),
                    *(self.control.wait_synced(node, _ACK_TIMEOUT) for node in nodes),
                )

    # What pods ask

    def forget_names(self) -> None:
        """Services or pods have changed: what names and addresses mean is found out anew."""
        self.lookups.forget()
        self._virtual_addresses.changed()

    def _about_to_call(self, addresses: Sequence[str], asker: str) -> None:
        """Nobody waits for it: a call that is sooner is held."""
        if self.control.mesh.settings.on_demand is not OnDemand.OFF:
            found = (pod for pod in self.pods() if asker in pod.plan.addresses.texts)
            for pod in found:
                self.control.expect(group_of(pod.plan.workload), addresses)

    # What people ask

    def pods(self) -> list[LocalPod]:
        return self._pods.all()

    def find_pod(self, word: str) -> LocalPod:
        """A pod by its name, or a ready one of a workload; NAMESPACE/ may precede either."""
        return self._pods.find(word)

    def status(self) -> MeshStatus:
        self.observer.look()
        sync = {proxy.node_id: PodSync(proxy.sync.value) for proxy in self.control.proxies()}
        return MeshStatus(
            name=self.name,
            directory=str(self.directory),
            pid=os.getpid(),
            started=self.started,
            workloads=self._pods.status(sync),
            edges=self.observer.traffic.edges(),
            problems=self.problems(),
            push=self.control.pushes,
            objects=self._objects() if self._loaded.is_set() else None,
            is_checked=not self.control.analyzing,
            is_told=not self.control.pending and PodSync.STALE not in sync.values(),
        )

    def _objects(self) -> int:
        return sum(key.kind != "Pod" for key, _ in self.control.mesh.values())

    def problems(self) -> tuple[Problem, ...]:
        return (
            *self.control.problems(),
            *(self._identities.ca_problems() if self._identities is not None else ()),
            *self._pods.problems(),
        )

    def ca_status(self) -> AuthorityStatus:
        return self.vouch().authority.status()

    def rotate_ca(self, propagation: timedelta | None = None) -> AuthorityStatus:
        """Begin to move to a new root. Raises AuthorityError."""
        return self.vouch().rotate(propagation)


def _make_bridge(bridge: Bridge) -> None:
    namespace.make(bridge.namespace.name)
    links.make_bridge(bridge)


def _allow_many_files() -> None:
    """Each connection is a file, and Envoys and apps inherit our limit: the usual 1,024 are soon used up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
