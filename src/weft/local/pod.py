"""The life of one pod (a replica of a Workload): create its network namespace, link, resolver file, identity, proxy and
app, watch its readiness, and remove everything in reverse order.

The engine creates a pod and runs it. The pod calls back whenever its status changes. Rule: whatever happens during
`run`, when it returns nothing of the pod is left on the machine except its logs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol as Typed

import msgspec

from weft.base.backoff import Backoff
from weft.local import readiness
from weft.local.addresses import Pair
from weft.local.blocking import to_its_end
from weft.local.dns import resolver_file
from weft.local.logs import PodLog
from weft.local.pod_files import view_of
from weft.local.readiness import App
from weft.local.run_directory import end_processes
from weft.local.status import PodPhase, PodStatus, PodSync
from weft.model.instance import Instance, pod_of
from weft.model.workload import RestartPolicy, Workload
from weft.netns import links, namespace
from weft.netns.listening import listening
from weft.netns.namespace import NetworkError, NetworkNamespace
from weft.netns.process import Spawn, end, last_words, spawn
from weft.netns.view import Laid
from weft.node.door import DoorError
from weft.node.proxy import SupervisedProxy
from weft.node.status import IdentityStatus

log = logging.getLogger("weft.local.pod")

FIRST_BACK_OFF = 0.2  # seconds
MOST_BACK_OFF = 30.0
STEADY = 10.0  # seconds that an app must run before the restart delay begins anew
DRAIN = 3.0  # seconds for requests in flight to finish when a pod ends
GRACE = 5.0  # seconds between SIGTERM and SIGKILL
START = 1.0  # seconds that an app is given to become ready before other pods may start


class IdentitySource(Typed):
    """The parts of the identities that a pod uses; `local/identities.py` implements this protocol."""

    async def give(self, plan: PodPlan, network: NetworkNamespace) -> None:
        """Open the SDS socket of the pod with this plan, for processes in its network namespace `network`, and request
        its certificate. Raises DoorError."""

    async def take(self, plan: PodPlan) -> None: ...

    def status(self, plan: PodPlan) -> IdentityStatus | None: ...


class PodEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod gets from its mesh: its network, directory, environment and identities. `bridge`: the bridge that it
    is connected to. `namespace_name`: the name of its network namespace. `domain`: the DNS domain of services.
    `visible`: paths of the machine that the pod can read, whatever the modes of their parents. `path`: the PATH of its
    app. `settled`: returns when the proxies have acknowledged the last change."""

    bridge: links.Bridge
    namespace_name: str
    directory: Path
    visible: tuple[str, ...]  # paths of the machine that the pod can read, whatever the modes of their parents
    path: str
    domain: str
    identities: IdentitySource
    settled: Callable[[], Awaitable[None]]  # returns when the proxies have acknowledged the last change


class PodPlan(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    workload: Workload
    addresses: Pair
    uid: int  # the user of its app; no other pod of the mesh has this UID
    # Unique: a later pod with the same name gets another UID.
    pod_uid: str = msgspec.field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def key(self) -> str:
        return f"{self.workload.namespace}/{self.name}"


MakeProxy = Callable[[PodPlan, NetworkNamespace, Path, Callable[[], None], PodLog], SupervisedProxy]


class LocalPod:
    def __init__(
        self, plan: PodPlan, place: PodEnvironment, make_proxy: MakeProxy, changed: Callable[[LocalPod], None]
    ) -> None:
        self.plan, self.place = plan, place
        self.phase = PodPhase.STARTING
        self.message = ""
        self.trouble = ""  # why the last attempt to start the pod failed
        self.restarts = 0
        self.exit_code: int | None = None
        self.since = time.time()
        self.proxy: SupervisedProxy | None = None
        self.log = PodLog(place.directory)
        self.namespace = NetworkNamespace(place.namespace_name)
        # Set when the first start has succeeded or failed, or takes long: then other pods may start.
        self.begun = asyncio.Event()
        self._make_proxy, self._changed = make_proxy, changed
        self._link = links.PodLink(self.namespace, place.bridge, plan.addresses.ipv4, plan.addresses.ipv6)
        self._process: Process | None = None
        self._served: tuple[str, ...] = ()  # the pod's addresses on which the app listens
        self._app_ready = False
        self._proxy_ready = asyncio.Event()
        self._ending = asyncio.Event()
        self._drains = True
        self._proxy_run: asyncio.Task[None] | None = None

    # State

    @property
    def ready(self) -> bool:
        return self.phase is PodPhase.READY

    @property
    def ended(self) -> bool:
        """Whether the pod is a job that has ended and will not run again."""
        return self.phase in (PodPhase.COMPLETED, PodPhase.FAILED)

    @property
    def node_id(self) -> str:
        """Return the node id of the pod's proxy; "" without a proxy."""
        return self.proxy.plan.bootstrap.node.id if self.proxy else ""

    def status(self, sync: Mapping[str, PodSync]) -> PodStatus:
        """Return the pod's status. `sync` has, by the node id of each connected proxy, whether that proxy has the
        latest config."""
        process = self._process
        proxy = self.proxy
        identity = self.place.identities.status(self.plan)
        return PodStatus(
            name=self.plan.name,
            namespace=self.plan.workload.namespace,
            workload=self.plan.workload.name,
            phase=self.phase,
            addresses=self.plan.addresses.texts,
            sync=sync.get(self.node_id, PodSync.NOT_SENT) if proxy and not self.ended else PodSync.NONE,
            restarts=self.restarts,
            proxy_restarts=proxy.restarts if proxy else 0,
            pid=process.pid if process is not None and process.returncode is None else 0,
            exit_code=self.exit_code,
            message=self.message
            or (proxy.message if proxy else "")
            or (identity.warning(time.time()) if identity else ""),
            since=self.since,
            proxy_memory=proxy.memory() if proxy else 0,
            identity=identity,
            labels=dict(self.plan.workload.labels),
            gateway=self.plan.workload.gateway,
        )

    def instance(self) -> Instance:
        """Return the pod as the mesh's `Instance`. The Instance has all addresses of the pod until it is known on
        which of them the app listens, and only those afterwards."""
        return pod_of(self.plan.workload, self.plan.name, self._served or self.plan.addresses.texts, ready=self.ready)

    @property
    def listening(self) -> frozenset[int]:
        """The ports on which the pod's app, or the gateway's Envoy, accepts connections from other pods."""
        if self.plan.workload.gateway and self.proxy is not None:
            return frozenset(port for _, port in listening(self.proxy.pid)) if self.proxy.pid else frozenset()
        process = self._process
        if process is None or process.returncode is not None:
            return frozenset()
        return frozenset(port for _, port in listening(process.pid))

    def command(self, argv: tuple[str, ...], *, stdout: int = DEVNULL, stderr: int = DEVNULL) -> Spawn:
        """Return how to start `argv` in this pod: with the user, environment, directory and files of the pod's app.
        `stdout` and `stderr`: as in subprocess."""
        workload = self.plan.workload
        return Spawn(
            argv=argv,
            namespace=self.namespace,
            uid=self.plan.uid,
            gid=self.plan.uid,
            environment=self._environment(),
            working_directory=workload.working_directory or "/",
            hostname=self.plan.name,
            view=view_of(
                workload,
                self.plan.uid,
                visible=self.place.visible,
                files=(
                    Laid(str(self.place.directory / name), f"/etc/{name}")
                    for name in ("resolv.conf", "hosts")
                    if name == "resolv.conf" or Path("/etc", name).exists()
                ),
            ),
            stdout=stdout,
            stderr=stderr,
        )

    # Life cycle

    async def run(self) -> None:
        """Create the pod and run it until its job is done, `end` is called, or the task is cancelled. Then remove
        everything of the pod except its logs."""
        try:
            living = asyncio.ensure_future(self._live())
            ending = asyncio.ensure_future(self._ending.wait())
            try:
                await asyncio.wait({living, ending}, return_when=asyncio.FIRST_COMPLETED)
                if ending.done() and not living.done():
                    await self._leave()
            finally:
                ending.cancel()
                living.cancel()
                await asyncio.wait({living})
                if not living.cancelled() and living.exception() is not None:
                    log.error("pod %s failed", self.plan.key, exc_info=living.exception())
                    self._enter(PodPhase.FAILED, f"internal error: {living.exception()}")
        finally:
            try:
                await self.place.identities.take(self.plan)
            finally:
                await to_its_end(self._clear_away)
                self.begun.set()
                self.log.close()

    def end(self, *, drain: bool = True) -> None:
        """Make `run` stop the pod and return. Without `drain`, the pod stops at once, and requests in flight are cut
        off."""
        self._drains = drain
        self._ending.set()

    async def _live(self) -> None:
        await self._build()
        if not self.plan.workload.inject:
            await self._run_app()
            return
        await self._run_with_proxy()

    async def _run_with_proxy(self) -> None:
        self.proxy = self._make_proxy(self.plan, self.namespace, self.place.directory, self._on_proxy_change, self.log)
        running = self._proxy_run = asyncio.ensure_future(self.proxy.run())
        try:
            # The app never runs without its proxy: its first connection would fail or bypass the mesh.
            await self._proxy_ready.wait()
            await (self._be_gateway() if self.plan.workload.gateway else self._run_app())
        finally:
            running.cancel()
            await asyncio.wait({running})

    async def _build(self) -> None:
        backoff = Backoff(first=FIRST_BACK_OFF, most=MOST_BACK_OFF)
        while True:
            try:
                await to_its_end(self._set_up)
                if self.plan.workload.inject:
                    await self.place.identities.give(self.plan, self.namespace)
                return
            except (NetworkError, DoorError, OSError) as error:
                await to_its_end(self._clear_away)
                delay = backoff.next()
                self.trouble = _words(error)
                self._enter(PodPhase.BACK_OFF, f"{self.trouble}; next try in {delay:.1f} s")
                await asyncio.sleep(delay)

    def _set_up(self) -> None:
        directory, domain = self.place.directory, self.place.domain
        server = str(self.place.bridge.ipv4.ip)
        hosts = ["127.0.0.1 localhost", "::1 localhost", *(f"{a} {self.plan.name}" for a in self.plan.addresses.texts)]
        for name, text in (
            ("resolv.conf", resolver_file(server, self.plan.workload.namespace, domain)),
            ("hosts", "\n".join([*hosts, ""])),
        ):
            (directory / name).write_text(text, encoding="utf-8")
            (directory / name).chmod(0o644)
        namespace.make(self.namespace.name)
        if self.plan.workload.gateway:
            namespace.open_low_ports(self.namespace)
        links.connect(self._link)

    def _clear_away(self) -> None:
        if namespace.exists(self.namespace):
            end_processes(self.namespace)
            with contextlib.suppress(NetworkError):
                links.disconnect(self._link)
            namespace.delete(self.namespace)

    async def _be_gateway(self) -> None:
        """Run the pod of a gateway, which has a proxy but no app, until cancelled."""
        self._app_ready = True
        self._enter(PodPhase.RUNNING, "")
        self._show("")
        await asyncio.Event().wait()

    async def _run_app(self) -> None:
        backoff = Backoff(first=FIRST_BACK_OFF, most=MOST_BACK_OFF)
        while True:
            started = time.monotonic()
            status, why = await self._run_app_once()
            self.exit_code = status
            policy = self.plan.workload.restart
            if status == 0 and policy is not RestartPolicy.ALWAYS:
                self._enter(PodPhase.COMPLETED, "")
                return
            if status is not None and policy is RestartPolicy.NEVER:
                self._enter(PodPhase.FAILED, why)
                return
            if time.monotonic() - started >= STEADY:
                backoff.reset()
            delay = backoff.next()
            self._enter(PodPhase.BACK_OFF, f"{why}; starts again in {delay:.1f} s")
            await asyncio.sleep(delay)
            self.restarts += 1

    async def _run_app_once(self) -> tuple[int | None, str]:
        """Run the app once. Return its exit status (None: it could not be started) and a text that explains the
        status."""
        self._app_ready = False
        try:
            process = self._process = await spawn(self.command(self.plan.workload.command, stdout=PIPE, stderr=STDOUT))
        except (NetworkError, OSError) as error:
            self.trouble = _words(error)
            return None, self.trouble
        self.trouble = ""
        self._enter(PodPhase.RUNNING, "")
        asyncio.get_running_loop().call_later(START, self.begun.set)
        assert process.stdout is not None  # noqa: S101 - it was asked for
        reading = asyncio.ensure_future(self.log.app.pump(process.stdout))
        watching = asyncio.ensure_future(readiness.watch(self._app(), self._on_answer))
        try:
            status = await process.wait()
        finally:
            watching.cancel()
            self._app_ready = False
            if process.returncode is None:
                await asyncio.shield(end(process, GRACE))
            # As in a container, the app's child processes end with it: otherwise they would keep its ports in use at
            # its next start.
            await to_its_end(partial(end_processes, self.namespace, self.plan.uid))
            await last_words(reading)
        return status, f"exited with status {status}" if status >= 0 else f"killed by signal {-status}"

    def _app(self) -> App:
        return App(
            workload=self.plan.workload,
            namespace=self.namespace,
            addresses=self.plan.addresses.texts,
            pid=self._process.pid if self._process is not None else 0,
            run=self._run_check,
        )

    async def _run_check(self, argv: tuple[str, ...]) -> int:
        process = await spawn(self.command(argv))
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                await asyncio.shield(end(process, 0.0))

    async def _leave(self) -> None:
        """Remove the pod from the endpoints of its services, so that no new call arrives; then let requests in flight
        finish. If `end` was called without draining, end the proxy at once instead. The caller stops the app and its
        proxy afterwards."""
        served = self.ready
        self._enter(PodPhase.ENDING, "")
        if not self._drains:
            # Proxy and app end together: an app that waits for its connections to close would wait for the proxy, which
            # waits for the app.
            if self._proxy_run is not None:
                self._proxy_run.cancel()
        elif served:
            await self.place.settled()
            if self.proxy is not None:
                await self.proxy.drain(DRAIN)

    # Callbacks of the readiness check and the proxy

    def _on_answer(self, ready: bool, why: str) -> None:
        if ready and not self._app_ready:
            self._served = readiness.served(self._app())
        self._app_ready = ready
        if self.phase in (PodPhase.RUNNING, PodPhase.READY):
            self._show(why)

    def _on_proxy_change(self) -> None:
        if self.proxy is not None and self.proxy.ready:
            self._proxy_ready.set()
        if self.proxy is not None and not self.proxy.ready:
            self.begun.set()
        if self.phase in (PodPhase.RUNNING, PodPhase.READY):
            self._show("")
        else:
            self._changed(self)

    def _show(self, why: str) -> None:
        proxy_ready = self.proxy is None or self.proxy.ready
        if self._app_ready and proxy_ready:
            self._enter(PodPhase.READY, "")
        else:
            self._enter(PodPhase.RUNNING, f"not ready: {why}" if why else "")

    def _enter(self, phase: PodPhase, message: str) -> None:
        if phase is not self.phase:
            self.since = time.time()
        before = (self.phase, self.message)
        self.phase, self.message = phase, message
        if phase not in (PodPhase.STARTING, PodPhase.RUNNING):
            self.begun.set()
        if before != (phase, message):
            self._changed(self)

    def _environment(self) -> dict[str, str]:
        workload = self.plan.workload
        return {
            "PATH": self.place.path,
            "HOME": "/tmp",
            "LANG": "C.UTF-8",
            "POD_NAME": self.plan.name,
            "POD_NAMESPACE": workload.namespace,
            "POD_IP": str(self.plan.addresses.ipv4),
            **dict(workload.environment),
        }


def _words(error: Exception) -> str:
    """Return the text of an error, without the name of the network namespace, which repeats the pod's name."""
    return error.problem.what if isinstance(error, NetworkError) else str(error)
