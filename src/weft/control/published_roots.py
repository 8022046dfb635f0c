"""The roots to trust, where others on a cluster look for them: a ConfigMap in every namespace, and the webhook
configurations, by which the API server knows whom it calls.

An authority comes in, writes leave, by the one replica that leads. Rule: only what differs is written, and what others
keep in these objects stays.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable

import msgspec

from weft.base.backoff import Backoff
from weft.ca.authority import Authority
from weft.kube.client import Client, PatchType
from weft.kube.error import ApiError, KubeError
from weft.kube.reflector import reflect
from weft.kube.resource import CONFIG_MAPS, MUTATING_WEBHOOKS, NAMESPACES, VALIDATING_WEBHOOKS, Resource

log = logging.getLogger("weft.control.published_roots")

CONFIG_MAP = "istio-ca-root-cert"
KEY = "root-cert.pem"
_MANAGER = "weft-roots"
_LABELS = {"istio.io/config": "true"}
# The same roots are written to one place at most so often: another control plane with other roots would write its own
# again each time, and both as fast as the API server takes it.
_MOST_WRITES, _CALM_SECONDS = 5, 60.0


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    deletion_timestamp: str = ""


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class _Namespace(msgspec.Struct, frozen=True):
    metadata: _Metadata
    status: _Status = _Status()


class _ConfigMap(msgspec.Struct, frozen=True):
    metadata: _Metadata
    data: dict[str, str] = {}


class _ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    ca_bundle: str = ""


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    client_config: _ClientConfig


class _Configuration(msgspec.Struct, frozen=True):
    metadata: _Metadata
    webhooks: tuple[_Webhook, ...] = ()


class PublishedRoots:
    def __init__(self, client: Client, authority: Authority, *, mutating: str, validating: str) -> None:
        """`mutating`, `validating`: the names of the webhook configurations."""
        self._client = client
        self._authority = authority
        self._mutating, self._validating = mutating, validating
        self._namespaces: set[str] = set()
        self._held: dict[str, str] = {}  # by namespace, what its ConfigMap holds
        self._configurations: dict[tuple[Resource, str], _Configuration] = {}
        self._due = asyncio.Event()
        self._writes: dict[str, tuple[str, float, int]] = {}  # by place: the roots, since when, how often

    async def run(self) -> None:
        """Until cancelled."""
        unsubscribe = self._authority.subscribe(self._due.set)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow_namespaces())
                tasks.create_task(self._follow_config_maps())
                tasks.create_task(self._follow_webhooks(MUTATING_WEBHOOKS, self._mutating))
                tasks.create_task(self._follow_webhooks(VALIDATING_WEBHOOKS, self._validating))
                tasks.create_task(self._publish())
        finally:
            unsubscribe()

    async def _follow_namespaces(self) -> None:
        async for batch in reflect(self._client, NAMESPACES, _Namespace):
            for event in batch:
                found = event.object
                if found is None or found.metadata.deletion_timestamp or found.status.phase == "Terminating":
                    self._namespaces.discard(event.name)  # what goes takes nothing new
                    self._writes.pop(_place(event.name), None)
                else:
                    self._namespaces.add(event.name)
            self._due.set()

    async def _follow_config_maps(self) -> None:
        async for batch in reflect(self._client, CONFIG_MAPS, _ConfigMap, fields=f"metadata.name={CONFIG_MAP}"):
            for event in batch:
                if event.object is None:
                    self._held.pop(event.namespace, None)
                else:
                    self._held[event.namespace] = event.object.data.get(KEY, "")
            self._due.set()

    async def _follow_webhooks(self, resource: Resource, name: str) -> None:
        async for batch in reflect(self._client, resource, _Configuration, fields=f"metadata.name={name}"):
            for event in batch:
                if event.object is None:
                    self._configurations.pop((resource, name), None)
                else:
                    self._configurations[(resource, name)] = event.object
            self._due.set()

    async def _publish(self) -> None:
        backoff = Backoff(first=0.5, most=30.0)
        while True:
            await self._due.wait()
            self._due.clear()
            if await self._write_what_differs():
                backoff.reset()
            else:
                self._due.set()
                await asyncio.sleep(backoff.next())

    async def _write_what_differs(self) -> bool:
        """Whether all of it could be written."""
        bundle = "".join(self._authority.bundle())
        encoded = base64.b64encode(bundle.encode()).decode()
        well = True
        for (resource, name), configuration in tuple(self._configurations.items()):
            wrong = [each.name for each in configuration.webhooks if each.client_config.ca_bundle != encoded]
            if wrong and self._is_calm(f"{resource.kind} {name}", bundle):
                well &= await _done(self._trust(resource, name, wrong, encoded))
        for namespace in sorted(self._namespaces):
            if self._held.get(namespace) != bundle and self._is_calm(_place(namespace), bundle):
                well &= await _done(self._put(namespace, bundle))
        return well

    def _is_calm(self, place: str, bundle: str) -> bool:
        loop = asyncio.get_running_loop()
        known, since, number = self._writes.get(place, ("", 0.0, 0))
        if known != bundle or loop.time() - since > _CALM_SECONDS:
            since, number = loop.time(), 0
        self._writes[place] = bundle, since, number + 1
        if number == _MOST_WRITES:
            log.error("somebody writes other roots to %s again and again: is there another control plane?", place)
            loop.call_later(since + _CALM_SECONDS - loop.time() + 1.0, self._due.set)
        return number < _MOST_WRITES

    async def _trust(self, resource: Resource, name: str, webhooks: list[str], bundle: str) -> None:
        patch = {"webhooks": [{"name": each, "clientConfig": {"caBundle": bundle}} for each in webhooks]}
        await self._client.patch(resource, name, patch, patch_type=PatchType.STRATEGIC, manager=_MANAGER)
        log.info("%s %s: the roots of the webhooks are up to date", resource.kind, name)

    async def _put(self, namespace: str, bundle: str) -> None:
        manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CONFIG_MAP, "namespace": namespace, "labels": _LABELS},
            "data": {KEY: bundle},
        }
        await self._client.apply(manifest, manager=_MANAGER, force=True)
        self._held[namespace] = bundle  # the watch says so, too, a little later


def _place(namespace: str) -> str:
    return f"ConfigMap {namespace}/{CONFIG_MAP}"


async def _done(write: Awaitable[None]) -> bool:
    try:
        await write
    except ApiError as error:
        # It may have gone just now, with its namespace; then a watch says so, too.
        if not error.not_found:
            log.error("the roots cannot be published: %s", error)
            return False
    except KubeError as error:
        log.warning("the roots cannot be published: %s", error)
        return False
    return True
