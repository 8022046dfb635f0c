"""The control plane on a Kubernetes cluster: a ControlPlane that reads objects from the API server, checks tokens with
TokenReviews, and keeps the CA's root in a Secret; and the webhooks.

It serves four ports, and the log levels on a port of the loopback interface. Every replica serves proxies and signs
certificates; only the replica that holds the Lease writes to the cluster. Rule: an unavailable API server does not
affect running traffic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, aclosing
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from weft.api.document import Document
from weft.api.parse import parse
from weft.base.backoff import Backoff
from weft.base.problem import Problem, Where
from weft.ca.authority import Authority, Terms
from weft.ca.plugged import is_plugged_in
from weft.ca.server import CaServer
from weft.ca.service import CertificateService
from weft.ca.serving import ServingCertificate
from weft.cluster.backend_authorities import BackendAuthorities
from weft.cluster.gateway_credentials import GatewayCredentials
from weft.cluster.injection import Injection
from weft.cluster.log_scopes import PORT as LOG_SCOPES_PORT
from weft.cluster.log_scopes import LogScopes
from weft.cluster.monitoring import Monitoring
from weft.cluster.overview import Overview
from weft.cluster.pod_placements import PodPlacements
from weft.cluster.published_roots import PublishedRoots
from weft.cluster.refusals import Refusals
from weft.cluster.root_secret import RootSecret
from weft.cluster.tls_front import Front
from weft.cluster.token_reviews import TokenReviews
from weft.control.access import Access
from weft.control.plane import ControlPlane
from weft.inspect.attach import attach_debug
from weft.inspect.debug.access import DebugAccess, debug_routes
from weft.install.names import InstallationNames
from weft.kube import source
from weft.kube.client import Client
from weft.kube.error import ApiError, KubeError
from weft.kube.gateway_deployments import GatewayDeployments
from weft.kube.gateway_status import all_wanted
from weft.kube.lease import Leader
from weft.kube.pods import PodIndex
from weft.kube.resource import CONFIG_MAPS
from weft.kube.status import StatusWriter
from weft.model.names import ObjectKey
from weft.model.settings import Settings
from weft.model.value import Value

log = logging.getLogger("weft.cluster.cluster_control")

_JUDGE_SECONDS = 1.0  # seconds between updates of the status of objects; the analysis has its own interval
_ROOT_SECONDS = 1.0  # seconds between checks for a requested rotation and for a deleted root Secret
_T = TypeVar("_T")


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str = "istio-system"
    revision: str = "default"
    domain: str = "cluster.local"
    replica: str = "weft-control"  # the name of this replica's pod
    plugged: Path | None = None  # directory of a plugged-in CA; it may not exist
    skew: timedelta = timedelta(seconds=60)
    xds: str = "127.0.0.1:15010"  # xDS without TLS, so by default only for this pod
    secure: str = "[::]:15012"
    webhooks: tuple[str | None, int] = (None, 15017)
    monitoring: tuple[str | None, int] = (None, 15014)
    log_scopes: tuple[str, int] = ("127.0.0.1", LOG_SCOPES_PORT)


class ClusterControl:
    def __init__(self, client: Client, settings: ClusterSettings) -> None:
        self._client = client
        self._settings = settings
        self._names = InstallationNames(settings.revision, settings.namespace)
        self._pods = PodIndex()
        self.plane = ControlPlane(
            domain=settings.domain,
            placements=PodPlacements(self._pods),
            admit=self._with_own_trust_domain,
            replica=settings.replica,
        )
        self._debug = attach_debug(self.plane, settings.namespace, loaded=lambda: self._loaded)
        self._asked_trust_domain = ""  # the trust domain in the mesh's current configuration
        self._statuses = StatusWriter(client)
        self._leader = Leader(client, settings.namespace, self._names.lease, settings.replica)
        self._refusals = Refusals(client, self._names, settings.replica, self.plane)
        self._injection = Injection(client, self._names, settings.domain)
        self._credentials = GatewayCredentials(client, self.plane, self._pods)
        own = (settings.namespace, self._names.mesh_config)
        self._authorities = BackendAuthorities(client, self.plane, own)
        self._loaded = self._leaving = False
        self.ports: dict[str, int] = {}  # port name → bound port, for callers that let the kernel choose

    async def run(self) -> None:
        """Run the control plane until cancelled. While it starts, it waits for an API server that is unavailable, and
        may raise AuthorityError, KubeError, ListenError or OSError."""
        settings = self._settings
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.plane.close)
            access = DebugAccess(
                settings.namespace, TokenReviews(self._client, lives=self._lives, at_once=2, waiting=20)
            )
            metrics = (self._metrics, self._injection.metrics)
            monitoring = Monitoring(self.lack, metrics, debug_routes(self._debug, access))
            stack.push_async_callback(monitoring.close)
            self.ports["monitoring"] = await monitoring.listen(*self._settings.monitoring)
            await self._open_log_scopes(stack)
            self.authority, kept = await _retried(self._open_authority)
            self._is_plugged = kept is None
            stack.callback(self.authority.close)
            stack.push_async_callback(self._injection.close)
            certificate = self._certificate()
            self.ports["webhooks"] = await _retried(lambda: self._injection.open(*self._settings.webhooks, certificate))
            await self._open_front(stack)
            await self.plane.listen(self._settings.xds)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.authority.run(), name="authority")
                if kept is not None:
                    tasks.create_task(kept.run(), name="root-secret")
                tasks.create_task(self._injection.run(), name="injection")
                tasks.create_task(self._follow(), name="source")
                tasks.create_task(self._credentials.run(), name="credentials")
                tasks.create_task(self._authorities.run(), name="authorities")
                tasks.create_task(self._judge(), name="judge")
                tasks.create_task(self._refusals.run(), name="refusals")
                tasks.create_task(self._leader.run(lambda: self._lead(kept)), name="leader")

    async def _open_log_scopes(self, stack: AsyncExitStack) -> None:
        scopes = LogScopes()
        stack.push_async_callback(scopes.close)
        try:
            self.ports["log_scopes"] = await scopes.listen(*self._settings.log_scopes)
        except OSError as error:  # another program on this machine has the port: nothing else depends on it
            log.warning("the log levels cannot be changed while this process runs: %s", error)

    def lack(self) -> str:
        """Return why this replica is not ready; "" if it is ready."""
        if self._leaving:
            return "the control plane is shutting down"
        if not self._loaded:
            return "the objects of the cluster are not loaded yet"
        return self._injection.lack()

    def leave(self) -> None:
        """Report this replica as not ready, before it shuts down. Clients that connect until all endpoints are
        updated are still served."""
        self._leaving = True
        self._injection.leave()

    async def _open_authority(self) -> tuple[Authority, RootSecret | None]:
        settings, terms = self._settings, Terms(skew=self._settings.skew)
        trust_domain = await self._trust_domain()
        if settings.plugged is not None and is_plugged_in(settings.plugged):
            log.info("signing for %s with the CA in %s", trust_domain, settings.plugged)
            return Authority.open(settings.plugged, trust_domain, terms), None
        kept = RootSecret(self._client, settings.namespace, trust_domain, terms)
        return await kept.open(), kept

    async def _trust_domain(self) -> str:
        """Read the trust domain from the mesh's configuration on the API server."""
        key = ObjectKey("ConfigMap", self._settings.namespace, self._names.mesh_config)
        try:
            config_map = await self._client.get(CONFIG_MAPS, key.name, namespace=key.namespace)
        except ApiError as error:
            if not error.not_found:
                raise
            return Settings().trust_domain
        body = {"apiVersion": "v1", "kind": "ConfigMap", **config_map}
        values = parse(Document(key, "v1", body), self._settings.domain).values
        return next((value.trust_domain for value in values if isinstance(value, Settings)), Settings().trust_domain)

    def _certificate(self) -> ServingCertificate:
        host = self._names.service_host
        return ServingCertificate(self.authority, (host, f"{host}.{self._settings.domain}"))

    async def _open_front(self, stack: AsyncExitStack) -> None:
        """Serve the CA and xDS on the TLS port, and register its closing with `stack`."""
        host = self._names.service_host
        front = Front(self.authority, names=(host, f"{host}.{self._settings.domain}"))
        stack.push_async_callback(front.close)
        tokens = TokenReviews(self._client, lives=self._lives)
        agents = frozenset({(self._settings.namespace, self._names.node)})
        access = Access(self.authority.trust_domain, tokens, front.identity_of, agents)
        ca = CaServer(CertificateService(self.authority, tokens), host_of=front.host_of)
        address = self._settings.secure
        bound = await front.listen(address, *ca.handlers(), *self.plane.handlers(address, access))
        self.ports["secure"] = int(bound.rpartition(":")[2])
        log.info("serving certificates and configuration of %s on %s", self.authority.trust_domain, bound)

    def _lives(self, pod_uid: str) -> bool:
        return not self._loaded or self._pods.by_uid(pod_uid) is not None

    async def _follow(self) -> None:
        batches = source.watch(
            self._client,
            root_namespace=self._settings.namespace,
            revision=self._settings.revision,
            pods=self._pods,
            revisions=self.plane.mesh.revisions,
        )
        async with aclosing(batches):
            async for batch in batches:
                try:
                    self.plane.apply(batch.changes, batch.problems, batch.values)
                    self._statuses.see(batch.statuses)
                # A defect in weft; a restart would not help, because the same objects would cause it again.
                except Exception:
                    log.exception("a batch of objects was not applied completely; later batches are still applied")
                if not self._loaded:
                    self._loaded = True
                    log.info("the objects of the cluster are loaded: %d pods", len(self._pods))

    async def _judge(self) -> None:
        while True:
            await asyncio.sleep(_JUDGE_SECONDS)
            if self._loaded:
                try:
                    self.plane.note("trust", self._unused())
                    problems = self.plane.problems()
                    self._statuses.judge_standard(all_wanted(self.plane.mesh, self.plane.faulty(), problems))
                    # Conditions of the Gateway API depend on the mesh alone; the status of other kinds waits for the
                    # analysis.
                    if not self.plane.analyzing:
                        self._statuses.judge_all(problems)
                except Exception:  # a defect in the status of objects must not stop the control plane
                    log.exception("cannot update the status of objects; retrying")

    def _with_own_trust_domain(self, value: Value) -> Value:
        """Return the mesh's settings with the trust domain that this process started with. Certificates have that trust
        domain: with another one, proxies would reject each other's certificates. `_unused` reports the difference."""
        if not isinstance(value, Settings):
            return value
        self._asked_trust_domain = value.trust_domain
        return msgspec.structs.replace(value, trust_domain=self.authority.trust_domain)

    def _unused(self) -> list[Problem]:
        """Return the problems of trust settings that have changed since the start and take effect only after a restart:
        trust must not change unnoticed."""
        problems = []
        restart = f"kubectl -n {self._settings.namespace} rollout restart deployment/{self._names.control}"
        asked, current = self._asked_trust_domain, self.authority.trust_domain
        if asked and asked != current:
            where = Where(object=f"ConfigMap {self._settings.namespace}/{self._names.mesh_config}", field="trustDomain")
            what = f"it is {asked} now, but certificates still have {current}"
            hint = (
                f"a root that weft made keeps {current} for ever: set {current} again; with a plugged-in CA: {restart}"
            )
            problems.append(Problem(where, what, hint))
        plugged = self._settings.plugged
        if plugged is not None and is_plugged_in(plugged) != self._is_plugged:
            if self._is_plugged:
                what = (
                    "its files were removed after the control plane started; it signs until the control plane restarts"
                )
            else:
                what = (
                    "it was added after the control plane started; the root that weft made signs until the control "
                    "plane restarts"
                )
            hint = f"pods that trust only one of the two roots cannot call each other; if that is intended: {restart}"
            problems.append(Problem(Where(object=f"the CA in {plugged}"), what, hint))
        return problems

    async def _lead(self, kept: RootSecret | None) -> None:
        """Run everything that writes to the cluster, as long as this replica holds the Lease. `kept`: the Secret of the
        root, which the leader rotates and restores; None with a plugged-in CA."""
        roots = PublishedRoots(self._client, self.authority, self._names)
        gateways = GatewayDeployments(
            self._client,
            self.plane.mesh,
            lambda problems: self.plane.note("gateways", problems),
            revision=self._settings.revision,
        )
        self.authority.lead()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(roots.run(), name="published-roots")
                tasks.create_task(self._statuses.run(), name="statuses")
                tasks.create_task(gateways.run(), name="gateways")
                tasks.create_task(Overview(self.plane, self._pods).run(), name="overview")
                if kept is not None:
                    tasks.create_task(_keep_root(kept), name="root")
        finally:
            self.authority.follow()

    def _metrics(self) -> Iterable[Metric]:
        plane = self.plane
        yield GaugeMetricFamily(
            "weft_leader", "1 if this replica holds the lease, and so writes to the cluster.", int(self._leader.leading)
        )
        yield GaugeMetricFamily("weft_pods", "Pods that this control plane knows.", len(self._pods))
        yield GaugeMetricFamily(
            "weft_proxies", "Proxies that get their config from this replica.", len(plane.proxies())
        )
        yield GaugeMetricFamily("weft_nodes", "Nodes whose agents are connected to this replica.", len(plane.nodes()))
        yield CounterMetricFamily("weft_pushes_total", "Times that changed config was sent to proxies.", plane.pushes)
        yield GaugeMetricFamily("weft_problems", "Problems of the mesh's objects now.", len(plane.problems()))
        yield CounterMetricFamily(
            "weft_translation_cpu_seconds_total", "CPU time spent on translation.", plane.translation_seconds
        )
        yield GaugeMetricFamily("weft_statuses_due", "Objects whose status is to be written.", self._statuses.due)
        authority = getattr(self, "authority", None)
        if authority is not None:
            yield CounterMetricFamily(
                "weft_certificates_issued_total", "Certificates that this replica has signed.", authority.issued
            )
            refused = CounterMetricFamily(
                "weft_certificates_refused_total", "Requests for a certificate that were rejected.", labels=("reason",)
            )
            for reason, number in authority.refused.items():
                refused.add_metric((reason,), number)
            yield refused


async def _retried(request: Callable[[], Awaitable[_T]]) -> _T:
    """Return the result of `request`, retried while the API server is unavailable. If the process exited instead, its
    restart back-off would grow, and cause minutes of downtime once the API server is available again."""
    backoff = Backoff(first=0.5, most=5.0)
    while True:
        try:
            return await request()
        except KubeError as error:
            if not error.retryable:
                raise
            log.warning("waiting for the API server: %s", error)
            await asyncio.sleep(backoff.next())


async def _keep_root(kept: RootSecret) -> None:
    while True:
        kept.rotate_if_asked()
        await kept.restore_if_gone()
        await asyncio.sleep(_ROOT_SECONDS)
