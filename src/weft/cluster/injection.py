"""The webhooks on a cluster: inject proxies by the settings in a ConfigMap, and serve with a certificate of the mesh.

Rule: invalid settings are ignored, and the previous settings stay. Without any valid settings, the webhook is not
ready: pod creation fails, or pods start without a proxy if the webhook's failurePolicy is Ignore.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import msgspec
from prometheus_client.core import Metric

from weft.ca.serving import ServingCertificate
from weft.cluster.sidecar_arguments import arguments
from weft.inject.injector import Injector, has_native_sidecars, has_sleep_hooks
from weft.inject.server import WebhookServer
from weft.inject.settings import InjectionSettings, SettingsError, read_config_map
from weft.install.names import InstallationNames
from weft.kube.client import Client
from weft.kube.error import ApiError
from weft.kube.reflector import reflect
from weft.kube.resource import CONFIG_MAPS

log = logging.getLogger("weft.cluster.injection")


class _ConfigMap(msgspec.Struct, frozen=True):
    data: dict[str, str] = {}


class _Version(msgspec.Struct, frozen=True):
    major: str = ""
    minor: str = ""


class Injection:
    def __init__(self, client: Client, names: InstallationNames, domain: str) -> None:
        self._client = client
        self._names = names
        self._domain = domain
        self._server: WebhookServer | None = None

    def leave(self) -> None:
        if self._server is not None:
            self._server.leave()

    async def open(self, host: str | None, port: int, certificate: ServingCertificate) -> int:
        """Read the settings and start the webhooks' server with this certificate. Returns its port. Raises KubeError,
        SettingsError or OSError."""
        version = msgspec.json.decode(await self._client.raw("GET", "/version"), type=_Version)
        injector = Injector(
            await self._first_settings(),
            arguments,
            native_sidecars=has_native_sidecars(version.major, version.minor),
            sleep_hooks=has_sleep_hooks(version.major, version.minor),
        )
        server = WebhookServer(injector, domain=self._domain)
        self._certificate = certificate
        self._use(server)
        certificate.changed = lambda: self._use(server)
        await server.start(host, port)
        self._server = server
        return server.port

    async def run(self) -> None:
        """Watch the settings and renew the certificate, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._certificate.run())
            tasks.create_task(self._follow())

    async def close(self) -> None:
        if self._server is not None:
            await self._server.stop()

    def lack(self) -> str:
        return "" if self._server is not None else "the webhooks are not served yet"

    def metrics(self) -> Iterable[Metric]:
        return self._server.metrics() if self._server is not None else ()

    def _use(self, server: WebhookServer) -> None:
        key, chain = self._certificate.pem
        server.use_certificate(chain, key)

    @property
    def _where(self) -> str:
        return f"ConfigMap {self._names.namespace}/{self._names.injector}"

    async def _first_settings(self) -> InjectionSettings:
        try:
            config_map = await self._client.get(
                CONFIG_MAPS, self._names.injector, _ConfigMap, namespace=self._names.namespace
            )
        except ApiError as error:
            if not error.not_found:
                raise
            return InjectionSettings(revision=self._names.revision, root_namespace=self._names.namespace)
        return self._read(config_map)

    def _read(self, config_map: _ConfigMap) -> InjectionSettings:
        """Parse the settings in a ConfigMap. Raises SettingsError."""
        return read_config_map(config_map.data, self._where)

    async def _follow(self) -> None:
        events = reflect(
            self._client,
            CONFIG_MAPS,
            _ConfigMap,
            namespace=self._names.namespace,
            fields=f"metadata.name={self._names.injector}",
        )
        async for batch in events:
            for event in batch:
                if event.object is None or self._server is None:
                    continue  # if the ConfigMap is deleted, its last settings stay
                try:
                    settings = self._read(event.object)
                except SettingsError as error:
                    log.error("the new injection settings are not used: %s", error)
                    continue
                if settings != self._server.injector.settings:
                    self._server.injector.settings = settings
                    log.info("new injection settings are in use")
