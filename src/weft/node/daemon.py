"""The agent of a Kubernetes node as one process: the CSI driver for kubelet, the pods' certificates and configuration,
the agent's own certificate, and its health endpoint.

At the start it recovers the state that the previous agent left, then registers with kubelet. SIGTERM ends it, and
running pods keep everything they have. Rule: one agent runs on a node at a time; the next one waits until the previous
one has released the lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from weft import __version__
from weft.base.health_site import HealthSite
from weft.ca.client import CertificateClient
from weft.model.proxy import IDENTITY_DRIVER, REDIRECT_SOCKET, XDS_SOCKET
from weft.node.agent import Agent
from weft.node.csi import Driver
from weft.node.identities import LIFETIME
from weft.node.keepsakes import Keepsakes, KeepsakesRefused
from weft.node.kubelet import ROOT, Kubelet
from weft.node.own import OwnIdentity
from weft.node.pods import NodePods, SocketServer
from weft.node.redirect import Redirects
from weft.node.relay import Relay, own_line
from weft.node.roots import LOOK, read_roots, watch_roots

log = logging.getLogger("weft.node.daemon")

_PRIVATE = "agent"  # in the driver's plugin directory
_LOCK, _SECRETS, _RELAY = "lock", "sds", "xds"  # in `_PRIVATE`
_LOCK_LOOK = 0.2  # seconds between attempts to take the lock


class DaemonSettings(msgspec.Struct, frozen=True, kw_only=True):
    node_name: str
    control: str  # HOST:PORT of xDS and the CA
    roots: Path  # PEM file of the roots that verify the control plane's certificate
    token: Path  # file of the agent's service account token
    control_name: str = ""  # the name in the control plane's certificate, if not the host of `control`
    kubelet_root: Path = ROOT
    driver: str = IDENTITY_DRIVER
    trust_domain: str = "cluster.local"
    state: Path | None = None  # a tmpfs; None: no state is kept for the next agent
    redirects: bool = False
    health: tuple[str | None, int] | None = None  # host and port; no host: every address
    lifetime: timedelta = LIFETIME
    look: float = LOOK  # seconds between reads of the `roots` file


class Daemon:
    def __init__(self, settings: DaemonSettings) -> None:
        """Build all parts of the agent. Raises OSError or ValueError if the roots cannot be read."""
        self._settings = settings
        bundle = read_roots(settings.roots)
        keepsakes = _keepsakes(settings.state)
        self._kubelet = Kubelet(settings.kubelet_root)
        self._private = self._kubelet.plugin(settings.driver) / _PRIVATE
        self._client = CertificateClient(settings.control, "".join(bundle), server_name=settings.control_name)
        self.own = OwnIdentity(
            settings.token, self._client, trust_domain=settings.trust_domain, lifetime=settings.lifetime
        )
        self.own.trust(bundle)
        self.agent = Agent(
            self._client,
            self._private / _SECRETS,
            lifetime=settings.lifetime,
            bundle=bundle,
            certified=lambda workload, fresh: self.pods.certified(workload, fresh),
            trusted=self.own.trust,
        )
        self._redirects = Redirects() if settings.redirects else None
        line = own_line(self.own, settings.control, settings.control_name)
        self.relay = Relay(self._private / _RELAY, settings.node_name, line)
        servers: dict[str, SocketServer] = {XDS_SOCKET: self.relay}
        if self._redirects is not None:
            servers[REDIRECT_SOCKET] = self._redirects
        self.pods = NodePods(self.agent, servers, keepsakes, trust_domain=settings.trust_domain, lack=self.relay.lack)
        self._driver = Driver(settings.driver, __version__, settings.node_name, self._kubelet, self.pods)
        self._bundle = bundle

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Run until cancelled; `ready` is called once the driver listens. Raises CsiListenError if a socket of the
        driver cannot be created, and OSError if the health address cannot be used."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._client.close)
            if self._settings.health is not None:
                health = HealthSite(self.lack, (self.metrics,))
                stack.push_async_callback(health.close)
                await health.listen(*self._settings.health)
            await stack.enter_async_context(_only_one(self._private))
            self.agent.start()
            stack.push_async_callback(self.agent.close)
            tasks = {"own-identity": self.own.run(), "roots-file": self._follow_roots()}
            self.relay.start()
            stack.push_async_callback(self.relay.close)
            if self._redirects is not None:
                stack.push_async_callback(self._redirects.close)
            for name, work in tasks.items():
                stack.push_async_callback(_end, asyncio.create_task(work, name=name))
            await self.pods.recover(self._kubelet.volumes(self._settings.driver))
            stack.push_async_callback(self._driver.close)
            await self._driver.start()
            ready()
            await asyncio.Event().wait()

    def lack(self) -> str:
        """Return why the agent cannot serve pods; an empty string if it can."""
        if not self._driver.is_registered:
            return f"kubelet has not registered the driver {self._settings.driver} yet"
        return ""

    def metrics(self) -> Iterable[Metric]:
        now, statuses = time.time(), self.agent.statuses()
        redirects = self._redirects
        own = self.own.status
        yield GaugeMetricFamily("weft_node_pods", "Pods that are served.", len(self.pods))
        yield GaugeMetricFamily(
            "weft_node_identities_held",
            "Pods whose certificate is valid now.",
            sum(each.is_held(now) for each in statuses),
        )
        yield GaugeMetricFamily(
            "weft_node_identities_failing",
            "Pods whose certificate cannot be issued or renewed.",
            sum(bool(each.error) for each in statuses),
        )
        yield GaugeMetricFamily(
            "weft_node_own_identity_held",
            "1 if the agent's own certificate is valid now.",
            int(own is not None and own.is_held(now)),
        )
        yield CounterMetricFamily(
            "weft_node_redirects_total", "Redirects set up in pods.", redirects.done if redirects else 0
        )
        yield CounterMetricFamily(
            "weft_node_redirects_failed_total",
            "Redirects that could not be set up.",
            redirects.failed if redirects else 0,
        )

    async def _follow_roots(self) -> None:
        async for bundle in watch_roots(self._settings.roots, self._bundle, look=self._settings.look):
            log.info("the roots in %s have changed; there are %d now", self._settings.roots, len(bundle))
            self._client.trust("".join(bundle))


def _keepsakes(directory: Path | None) -> Keepsakes | None:
    """Return the store in `directory` for the state that the next agent reads. Return None without a directory, and
    also if the directory is not safe for keys: an agent that keeps no state is better than no agent."""
    if directory is None:
        return None
    try:
        return Keepsakes(directory)
    except KeepsakesRefused as refused:
        log.error("%s; no state is kept for the next agent", refused)
        return None


@contextlib.asynccontextmanager
async def _only_one(private: Path) -> AsyncIterator[None]:
    """Wait for the lock in the directory `private`, and hold it inside the block. Only one agent of the node holds
    this lock, because two agents would replace each other's sockets. Once the lock is held, delete the sockets
    that a killed agent left in `private`."""
    for directory in (private.parent, private):
        directory.mkdir(mode=0o700, exist_ok=True)
        directory.chmod(0o700)  # kubelet creates a hostPath directory that all users can read
    lock = os.open(private / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        is_logged = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not is_logged:
                    is_logged = True
                    log.info("another agent is still running; waiting until it releases the lock %s", private / _LOCK)
                await asyncio.sleep(_LOCK_LOOK)
        for name in (_SECRETS, _RELAY):
            shutil.rmtree(private / name, ignore_errors=True)
        yield
    finally:
        os.close(lock)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})
