"""The Envoy of one workload: started as the proxy's user, supervised, and restarted when it exits.

Input: a `ProxyPlan` with the bootstrap and the network namespace. Output: whether the proxy is ready, and a message if
not. Rule: interception rules are installed only once the listeners to which they redirect accept connections, and are
kept while Envoy is down, so that intercepted traffic never bypasses the proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from weft.base.backoff import Backoff
from weft.envoy.admin import Admin
from weft.envoy.binary import EnvoyError
from weft.envoy.bootstrap import Bootstrap
from weft.envoy.command import prepare
from weft.model.proxy import PROXY_GID, PROXY_UID
from weft.netns import iptables
from weft.netns.interception import Interception
from weft.netns.namespace import NetworkError, NetworkNamespace, socket_in
from weft.netns.process import Spawn, end, last_words, spawn
from weft.netns.view import Laid, View
from weft.translate.names import VIRTUAL_INBOUND, VIRTUAL_OUTBOUND

log = logging.getLogger("weft.node.proxy")

_NEEDED = frozenset({VIRTUAL_INBOUND, VIRTUAL_OUTBOUND})  # listeners that the interception rules redirect to
_LISTENER_LOOK = 0.25  # seconds between checks for a listener that was rejected; most proxies need one check
_IDENTITY_LOOK = 0.05  # seconds between checks for a certificate; signing takes about 1 ms
_READY_TIMEOUT = 30.0  # seconds; an Envoy that has its config is ready within 0.2 s
_STEADY = 10.0  # seconds of uptime after which the restart delay starts from its minimum again
_END_GRACE = 2.0  # seconds between SIGTERM and SIGKILL
_ACTIVE_INBOUND = r"^http\.inbound.*\.downstream_rq_active$"
_ACTIVE = r"^http\..*\.downstream_rq_active$"
_OWN = ("http.own-admin.", "http.admin.")  # stat prefixes of its admin listeners, which are not the workload's traffic


class ProxyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything needed to run the proxy of one workload. `binary`: the Envoy executable. `namespace`: the network
    namespace in which it runs. `directory`: the proxy's own directory, to which its bootstrap is written; `started_in`:
    Envoy's working directory, if it is another one. `interception`: None if no traffic is intercepted, as at a gateway.
    `sockets`: paths that Envoy must be able to reach. `files`: files that Envoy sees in place of the machine's, such as
    another resolv.conf."""

    bootstrap: Bootstrap
    binary: Path
    namespace: NetworkNamespace
    directory: Path  # the proxy's own; Envoy's bootstrap is written there
    interception: Interception | None  # None: no traffic is intercepted, as at a gateway
    sockets: tuple[str, ...] = ()  # paths that Envoy must reach: the control plane's socket, the SDS directory
    files: tuple[Laid, ...] = ()  # mounted over the machine's files, such as resolv.conf for DNS clusters
    started_in: Path | None = None  # Envoy's working directory, if it is not `directory`
    log_level: str = "warning"


class SupervisedProxy:
    """One Envoy process and its restarts. `synced`: called with the proxy's node id and a timeout in seconds; waits
    until the proxy has acknowledged its config, and returns whether it has. `changed` is called when `ready` or
    `message` changes. `output` reads Envoy's output until its end. `lacks` returns why the workload has no certificate,
    or an empty string: without a certificate a proxy never becomes ready."""

    def __init__(
        self,
        plan: ProxyPlan,
        *,
        synced: Callable[[str, float], Awaitable[bool]],
        changed: Callable[[], None],
        output: Callable[[asyncio.StreamReader], Awaitable[None]],
        lacks: Callable[[], str] = lambda: "",
    ) -> None:
        self.plan = plan
        self.ready = False
        self.restarts = 0
        self.message = ""
        self.admin = Admin(lambda: socket_in(plan.namespace), name=f"proxy of {plan.bootstrap.node.name}")
        self._synced, self._changed, self._output, self._lacks = synced, changed, output, lacks
        self._process: Process | None = None
        self._intercepting = False

    @property
    def pid(self) -> int:
        process = self._process
        return process.pid if process is not None and process.returncode is None else 0

    def memory(self) -> int:
        """Return Envoy's private memory in bytes. Memory that all Envoys share, such as the binary, is not counted. 0
        if the proxy is not ready."""
        return private_memory(self.pid) if self.ready else 0  # until exec, the process is the shell that starts Envoy

    async def run(self) -> None:
        """Keep Envoy running until cancelled, then end it."""
        backoff = Backoff(first=0.1, most=30.0)
        try:
            while True:
                started = time.monotonic()
                why = await self._run_once()
                if time.monotonic() - started > _STEADY:
                    backoff.reset()
                delay = backoff.next()
                self._report(ready=False, message=f"proxy: {why}; starts again in {delay:.1f} s")
                log.warning("%s: %s", self.plan.bootstrap.node.id, self.message)
                await asyncio.sleep(delay)
                self.restarts += 1
        finally:
            self.ready = False
            await self._end()
            await self.admin.close()

    async def drain(self, timeout: float) -> None:
        """Let Envoy accept no new requests and finish the active ones, for `timeout` seconds at most."""
        with contextlib.suppress(EnvoyError, NetworkError, OSError, TimeoutError):
            async with asyncio.timeout(timeout):
                inbound = self.plan.interception is not None
                await self.admin.drain(inbound_only=inbound)
                while await self._is_busy(_ACTIVE_INBOUND if inbound else _ACTIVE):
                    await asyncio.sleep(0.05)

    async def _is_busy(self, pattern: str) -> bool:
        active = (await self.admin.stats(pattern)).values
        return any(count for name, count in active.items() if not name.startswith(_OWN))

    async def _run_once(self) -> str:
        """Start Envoy, wait until it exits or fails to become ready, and return the reason."""
        plan = self.plan
        try:
            process = self._process = await self._start()
        except (NetworkError, EnvoyError, OSError) as error:
            return str(error)
        assert process.stdout is not None  # noqa: S101 - it was asked for
        reading = asyncio.ensure_future(self._output(process.stdout))
        becoming_ready = asyncio.ensure_future(self._become_ready())
        dying = asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait({becoming_ready, dying}, return_when=asyncio.FIRST_COMPLETED)
            if not dying.done():
                failure = becoming_ready.result()
                if failure:
                    return failure
                self._report(ready=True, message="")
            status = await dying
            return f"Envoy ended with {_status_text(status)}; see `weft logs --proxy {plan.bootstrap.node.name}`"
        finally:
            for task in (becoming_ready, dying):
                task.cancel()
            await asyncio.shield(self._end())
            await last_words(reading)

    async def _start(self) -> Process:
        plan = self.plan
        command = prepare(plan.bootstrap, plan.binary, plan.directory, log_level=plan.log_level)
        return await spawn(
            Spawn(
                argv=command.argv,
                namespace=plan.namespace,
                uid=PROXY_UID,
                gid=PROXY_GID,
                environment=command.environment,
                working_directory=str(plan.started_in or command.working_directory),
                view=View(visible=(*command.visible, *plan.sockets), files=plan.files),
                core_dumps=False,  # Envoy's memory contains the workload's key
                stdout=PIPE,
                stderr=STDOUT,
            )
        )

    async def _become_ready(self) -> str:
        node_id = self.plan.bootstrap.node.id
        # Envoy's listeners wait only for the certificate. Restarting Envoy would not help.
        while why := self._lacks():
            self._report(ready=False, message=f"proxy: {why}")
            await asyncio.sleep(_IDENTITY_LOOK)
        if not await self._synced(node_id, _READY_TIMEOUT):
            return f"Envoy has no configuration after {_READY_TIMEOUT:.0f} s"
        try:
            async with asyncio.timeout(_READY_TIMEOUT):
                await self.admin.wait_until_ready(every=0.005)
            # Envoy reports ready once every xDS request has a response, even if it has rejected all of the config.
            needed = _NEEDED if self.plan.interception is not None else frozenset()
            while missing := needed - await self.admin.live_listeners():
                self._report(ready=False, message=await self._why_missing(sorted(missing)))
                await asyncio.sleep(_LISTENER_LOOK)
            if self.plan.interception is not None and not self._intercepting:
                await asyncio.to_thread(iptables.apply, self.plan.namespace, self.plan.interception)
                self._intercepting = True
        except TimeoutError:
            return f"Envoy is not ready after {_READY_TIMEOUT:.0f} s"
        except (EnvoyError, NetworkError) as error:
            return str(error)
        return ""

    async def _why_missing(self, listeners: list[str]) -> str:
        refused = await self.admin.refused_listeners()
        why = next((refused[name] for name in listeners if name in refused), "the control plane sent no such listener")
        return f"proxy: Envoy has no {' and no '.join(listeners)} listener: {why}"

    async def _end(self) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            await end(process, _END_GRACE)

    def _report(self, *, ready: bool, message: str) -> None:
        if (self.ready, self.message) != (ready, message):
            self.ready, self.message = ready, message
            self._changed()


def private_memory(pid: int) -> int:
    """Return the private memory of a process in bytes, or 0 if there is no such process.

    The kernel counts anonymous pages as they are used. For `smaps_rollup` it would walk all pages: 1 to 10 ms for an
    Envoy, in which a control plane of 300 pods would do nothing else."""
    if not pid:
        return 0
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("RssAnon:")), 0)


def _status_text(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"status {status}"
