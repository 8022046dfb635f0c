"""A mesh on one machine: connects the watched directory, the control plane, the pods, DNS and the mesh's Unix socket.

`start` returns when everything runs and the files have been read once. `stop` removes everything again, in any state
and within bounded time. Rule: everything that `start` creates is removed in `stop`; releasing the run directory removes
whatever remains.
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
from weft.local.dns_thread import DnsThread
from weft.local.egress import Egress, way_out
from weft.local.error import LocalError
from weft.local.identities import Identities, Trust
from weft.local.lookups import Lookups
from weft.local.observer import TrafficObserver
from weft.local.pod import LocalPod
from weft.local.pods import LocalPods, MachineSetup
from weft.local.run_directory import RunDirectory
from weft.local.server import MeshServer
from weft.local.status import MeshStatus, PodSync, RejectedVersion
from weft.local.virtual_addresses import VirtualAddresses
from weft.model.group import group_of
from weft.model.names import ObjectKey
from weft.model.on_demand import OnDemand
from weft.model.proxy import PROXY_GID
from weft.model.workload import Workload
from weft.netns import links, namespace
from weft.netns.links import BRIDGE, Bridge
from weft.netns.namespace import NetworkError, NetworkNamespace, ipv6_available
from weft.xds.server import ListenError

log = logging.getLogger("weft.local.engine")

_STOP_TIMEOUT = 20.0  # seconds for pods to stop gracefully; then their processes are killed
_ACK_TIMEOUT = 1.0
_OPEN_FILES = 65_536
# Kinds that affect how calls are handled, but not the meaning of names and addresses.
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
        egress: bool = False,
    ) -> None:
        """`directory`: the mesh's directory of YAML. `name`: the name of the mesh, unique among the running meshes.
        `domain`: the DNS domain of services. `trust`: the CA, and the lifetime of certificates. `history`: a private
        directory for the recorded history of the mesh. Without it, the history is lost when the mesh stops.
        `egress`: pods can reach TCP hosts outside the mesh."""
        self.directory = directory.absolute()
        self.name = name
        self.domain = domain
        self.trust = trust
        self.started = time.time()
        self.ending = asyncio.Event()  # set when the mesh has failed: its runner then calls `stop`
        self.failure: LocalError | None = None  # why the mesh has failed
        self.addresses = Addresses(ipv6=ipv6_available())
        memory = Memory(history, domain=domain, admit=self.addresses.readmit) if history is not None else None
        self._admission = LocalAdmission(self)
        self.control = ControlPlane(
            domain=domain, admit=self._admission.admit, replica=name, memory=memory, egress=egress
        )
        self.debug = attach_debug(self.control)
        self.observer = TrafficObserver(self)
        self.lookups = Lookups(self.control.mesh, domain)
        self._pods = LocalPods(self)
        self.control.listening = self._pods.listening
        self._run_directory: RunDirectory | None = None
        self._dns = DnsThread(self.lookups, self._about_to_call)
        self._server = MeshServer(self)
        self._identities: Identities | None = None  # created after the files, which set the trust domain, were read
        self._has_egress = egress
        self._egress: Egress | None = None
        servers = (str(each.ip) for each in self.addresses.bridge if each is not None)
        self._virtual_addresses = VirtualAddresses(self.control.mesh, way_out(servers, BRIDGE) if egress else None)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loaded = asyncio.Event()  # the files have been read once
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    # Start and stop

    async def start(self) -> None:
        """Start the mesh. If that fails, remove everything that was created, then raise LocalError, or the exception of
        an unexpected failure."""
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
        except Exception as error:
            # Recorded, because `stop` sets `ending`, after which a runner looks for the failure.
            self.failure = LocalError(f"mesh {self.name} cannot start: {error!r}", "please report this error")
            await self.stop()
            raise
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the mesh and remove everything it created. Idempotent: a second caller waits for the first call. If the
        caller is cancelled, stopping continues to its end."""
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
        await self._dns.start(bridge.namespace, servers)
        if self._has_egress:
            self._egress = Egress(envoy, here.path, bridge)
            await self._egress.start()
            self._keep(self._egress.keep())
            self._virtual_addresses.changed()
        await self.control.listen(f"unix:{here.xds_socket}")
        # Only the proxies' user may connect; an app in the same pod may not.
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
        if self._egress is not None:
            await self._egress.close()
        await self._server.close()
        if self._identities is not None:
            await self._identities.close()
        await self._dns.close()
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
            return  # an error of the first reading is raised by `start`
        if not task.cancelled() and task.exception() is not None and self._stopping is None:
            error = task.exception()
            log.error("the mesh failed", exc_info=error)
            self.failure = LocalError(
                f"mesh {self.name} failed: {error!r}", "please report this error, with the mesh's log"
            )
            self.ending.set()

    # Files → control plane → pods

    async def _watch(self) -> None:
        async with aclosing(watch(self.directory, reader=self.control.reader)) as batches:
            async for batch in batches:
                self.control.apply(batch.changes, batch.problems, kept=batch.kept)
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
        """Return the mesh's identities (CA, tokens, agent). The first call creates them; that happens after the files
        have been read and before the first pod starts."""
        if self._identities is None:
            here = self._run_directory
            assert here is not None  # noqa: S101 - files are read only after it is made
            self._identities = Identities(here.secrets, self._admission.fix_trust_domain(), self.trust)
            self._identities.start()
        return self._identities

    async def settled(self) -> None:
        """Return when every proxy has acknowledged the last change, and the published ports and the bridge's
        load-balancing rules contain the change, but after one second at the latest."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ACK_TIMEOUT):
                await self.control.pushed()
                nodes = [proxy.node_id for proxy in self.control.proxies()]
                await self._pods.settled()
                await asyncio.gather(
                    self._virtual_addresses.settled(),
                    *(self.control.wait_synced(node, _ACK_TIMEOUT) for node in nodes),
                )

    # DNS queries of pods

    def forget_names(self) -> None:
        """Discard the cached DNS index, and let the bridge's rules be computed again, after a change of services or
        pods."""
        self.lookups.forget()
        self._virtual_addresses.changed()

    def _about_to_call(self, addresses: Sequence[str], asker: str) -> None:
        """Inform the control plane that the pod at the address `asker` is about to call `addresses`, so that the
        pod's proxy gets its on-demand config early. The DNS answer does not wait for that config: if the call
        comes first, it waits in the proxy."""
        if self.control.mesh.settings.on_demand is not OnDemand.OFF:
            callers = (pod for pod in self.pods() if asker in pod.plan.addresses.texts)
            for pod in callers:
                self.control.expect(group_of(pod.plan.workload), addresses)

    # Requests of the CLI

    def pods(self) -> list[LocalPod]:
        return self._pods.all()

    def find_pod(self, word: str) -> LocalPod:
        """Return the pod with the name `word`, or a pod of the workload with that name, a ready one if there is one.
        `word` may begin with NAMESPACE/. Raises LocalError if there is no such pod."""
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
            rejected=tuple(
                RejectedVersion(str(each.key), each.key.kind, each.where.file, each.where.line, each.is_in_force)
                for each in self.control.rejected()
            ),
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
            *(self._egress.problems() if self._egress is not None else ()),
        )

    def ca_status(self) -> AuthorityStatus:
        return self.vouch().authority.status()

    def rotate_ca(self, propagation: timedelta | None = None) -> AuthorityStatus:
        """Start the rotation of the mesh's CA to a new root, and return the CA's state. Raises AuthorityError.
        `propagation`: how long the new root is trusted before it signs; None for the default."""
        return self.vouch().rotate(propagation)


def _make_bridge(bridge: Bridge) -> None:
    namespace.make(bridge.namespace.name)
    links.make_bridge(bridge)


def _allow_many_files() -> None:
    """Raise the limit of open files of this process, which Envoys and apps inherit. Each connection is an open file,
    and the usual limit of 1,024 is soon used up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
