"""Publishes the root certificates on a cluster: in a ConfigMap in every namespace, and in the caBundle of the webhook
configurations, with which the API server verifies the webhooks.

Only the leading replica writes. Rule: only differences are written, and other writers' fields in these objects stay.
Control planes with other roots share the ConfigMap: each control plane claims its own roots in an annotation, and
removes roots that no control plane claims.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import re
from collections.abc import Awaitable
from hashlib import sha256

import msgspec

from weft.base.backoff import Backoff
from weft.ca.authority import Authority
from weft.install.names import ROOTS_ANNOTATION, InstallationNames
from weft.kube.client import Client, PatchType
from weft.kube.error import ApiError, KubeError
from weft.kube.reflector import reflect
from weft.kube.resource import CONFIG_MAPS, MUTATING_WEBHOOKS, NAMESPACES, VALIDATING_WEBHOOKS, ResourceKind
from weft.model.proxy import ROOT_CONFIG_MAP

log = logging.getLogger("weft.cluster.published_roots")

KEY = "root-cert.pem"
_MANAGER = "weft-roots"
_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----\s(.*?)-----END CERTIFICATE-----\n?", re.DOTALL)
_LABELS = {"istio.io/config": "true"}
# The most writes of the same roots to one object within _CALM_SECONDS. Without this limit, two control planes with
# different roots would overwrite each other's as fast as the API server allows.
_MOST_WRITES, _CALM_SECONDS = 5, 60.0


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    deletion_timestamp: str = ""
    annotations: dict[str, str] = {}


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


class _Held(msgspec.Struct, frozen=True):
    """The content of a ConfigMap with roots. `roots`: digest -> certificate. `claims`: annotation of a control plane ->
    the digests of the roots that it claims."""

    roots: dict[str, str] = {}
    claims: dict[str, str] = {}


class PublishedRoots:
    def __init__(self, client: Client, authority: Authority, names: InstallationNames) -> None:
        self._client = client
        self._authority = authority
        self._names = names
        self._namespaces: set[str] = set()
        self._held: dict[str, _Held] = {}  # namespace → content of its ConfigMap
        self._configurations: dict[tuple[ResourceKind, str], _Configuration] = {}
        self._due = asyncio.Event()
        # Object → roots, time of the first write, number of writes.
        self._writes: dict[str, tuple[str, float, int]] = {}

    async def run(self) -> None:
        """Publish the roots until cancelled."""
        unsubscribe = self._authority.subscribe(self._due.set)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow_namespaces())
                tasks.create_task(self._follow_config_maps())
                tasks.create_task(self._follow_webhooks(MUTATING_WEBHOOKS, self._names.injector))
                tasks.create_task(self._follow_webhooks(VALIDATING_WEBHOOKS, self._names.validator))
                tasks.create_task(self._publish())
        finally:
            unsubscribe()

    async def _follow_namespaces(self) -> None:
        async for batch in reflect(self._client, NAMESPACES, _Namespace):
            for event in batch:
                namespace = event.object
                if (
                    namespace is None
                    or namespace.metadata.deletion_timestamp
                    or namespace.status.phase == "Terminating"
                ):
                    self._namespaces.discard(event.name)  # the namespace is being deleted: nothing can be created in it
                    self._writes.pop(_place(event.name), None)
                else:
                    self._namespaces.add(event.name)
            self._due.set()

    async def _follow_config_maps(self) -> None:
        async for batch in reflect(self._client, CONFIG_MAPS, _ConfigMap, fields=f"metadata.name={ROOT_CONFIG_MAP}"):
            for event in batch:
                if event.object is None:
                    self._held.pop(event.namespace, None)
                else:
                    self._held[event.namespace] = _held(event.object)
            self._due.set()

    async def _follow_webhooks(self, resource: ResourceKind, name: str) -> None:
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
        """Write the roots into the ConfigMaps and webhook configurations whose content differs. Returns whether all
        writes succeeded."""
        bundle = "".join(self._authority.bundle())
        encoded = base64.b64encode(bundle.encode()).decode()
        well = True
        for (resource, name), configuration in tuple(self._configurations.items()):
            wrong = [each.name for each in configuration.webhooks if each.client_config.ca_bundle != encoded]
            if wrong and self._is_calm(f"{resource.kind} {name}", bundle):
                well &= await _done(self._trust(resource, name, wrong, encoded))
        for namespace in sorted(self._namespaces):
            current = self._held.get(namespace)
            wanted = self._wanted(bundle, current)
            if current != wanted and self._is_calm(_place(namespace), "".join(wanted.roots.values())):
                well &= await _done(self._put(namespace, wanted))
        return well

    def _wanted(self, bundle: str, current: _Held | None) -> _Held:
        """Return what the ConfigMap should contain: this control plane's roots (`bundle`, PEM), and those existing
        roots in `current` that other control planes claim. `current`: its content; None if it does not exist."""
        ours, claims = _roots(bundle), dict(current.claims) if current is not None else {}
        claims.pop(self._names.roots_annotation, None)
        theirs = {digest for claim in claims.values() for digest in claim.split(",")}
        there = current.roots if current is not None else {}
        return _Held(
            {**ours, **{digest: root for digest, root in there.items() if digest in theirs}},
            {**claims, self._names.roots_annotation: ",".join(ours)},
        )

    def _is_calm(self, place: str, bundle: str) -> bool:
        loop = asyncio.get_running_loop()
        known, since, number = self._writes.get(place, ("", 0.0, 0))
        if known != bundle or loop.time() - since > _CALM_SECONDS:
            since, number = loop.time(), 0
        self._writes[place] = bundle, since, number + 1
        if number == _MOST_WRITES:
            log.error("%s is overwritten with other roots again and again: is there another control plane?", place)
            loop.call_later(since + _CALM_SECONDS - loop.time() + 1.0, self._due.set)
        return number < _MOST_WRITES

    async def _trust(self, resource: ResourceKind, name: str, webhooks: list[str], bundle: str) -> None:
        patch = {"webhooks": [{"name": each, "clientConfig": {"caBundle": bundle}} for each in webhooks]}
        await self._client.patch(resource, name, patch, patch_type=PatchType.STRATEGIC, manager=_MANAGER)
        log.info("%s %s: the roots of the webhooks are up to date", resource.kind, name)

    async def _put(self, namespace: str, wanted: _Held) -> None:
        claim = self._names.roots_annotation
        manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": ROOT_CONFIG_MAP,
                "namespace": namespace,
                "labels": _LABELS,
                "annotations": {claim: wanted.claims[claim]},
            },
            "data": {KEY: "".join(wanted.roots.values())},
        }
        # Each control plane has its own field manager: an apply removes only fields that the same manager set before.
        await self._client.apply(manifest, manager=f"{_MANAGER}-{self._names.owner}", force=True)
        self._held[namespace] = wanted  # the watch reports this write a little later


def _held(config_map: _ConfigMap) -> _Held:
    claims = {name: each for name, each in config_map.metadata.annotations.items() if name.startswith(ROOTS_ANNOTATION)}
    return _Held(_roots(config_map.data.get(KEY, "")), claims)


def _roots(bundle: str) -> dict[str, str]:
    """Split a PEM bundle into certificates: digest -> certificate. Text between certificates is ignored."""
    blocks = _BLOCK.finditer(bundle)
    return {sha256("".join(block[1].split()).encode()).hexdigest()[:32]: f"{block[0].rstrip()}\n" for block in blocks}


def _place(namespace: str) -> str:
    return f"ConfigMap {namespace}/{ROOT_CONFIG_MAP}"


async def _done(write: Awaitable[None]) -> bool:
    try:
        await write
    except ApiError as error:
        # The object may have been deleted just now, together with its namespace; the watch will report that.
        if not error.not_found:
            log.error("cannot publish the roots: %s", error)
            return False
    except KubeError as error:
        log.warning("cannot publish the roots: %s", error)
        return False
    return True
