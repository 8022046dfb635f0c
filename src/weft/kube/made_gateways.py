"""Finds and removes the objects that a revision has created for Gateways (`gateway_deployments.py`), when that
revision is removed.

Rule: only objects that have weft's label and are owned by a Gateway of the Gateway API are removed; the Gateways are
kept. The control plane must be removed first, or it creates these objects again; the node agent last, because pods
need it to terminate.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection

import msgspec

from weft.kube.client import Client
from weft.kube.gateway_deployments import REVISION_OF
from weft.kube.resource import DEPLOYMENTS, PODS, SERVICE_ACCOUNTS, SERVICES, ObjectReference, ResourceKind
from weft.model.gateway_api import GATEWAY_NAME, GROUP

_LOOK_SECONDS = 0.2


class GatewayObjects(msgspec.Struct, frozen=True):
    """The objects created for one Gateway."""

    namespace: str
    gateway: str
    objects: tuple[tuple[ResourceKind, ObjectReference], ...]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.gateway}"


async def made(client: Client, revision: str | None) -> tuple[GatewayObjects, ...]:
    """Return the objects that `revision` created for Gateways, grouped by Gateway; with None, those of all
    revisions."""
    labels = REVISION_OF if revision is None else f"{REVISION_OF}={revision}"
    by_gateway: dict[tuple[str, str], list[tuple[ResourceKind, ObjectReference]]] = {}
    for resource in (DEPLOYMENTS, SERVICES, SERVICE_ACCOUNTS):
        for each in (await client.list(resource, _Object, labels=labels)).items:
            metadata = each.metadata
            owner = next((owner.name for owner in metadata.owner_references or () if owner.is_gateway), "")
            if owner:
                reference = ObjectReference(resource.api_version, resource.kind, metadata.namespace, metadata.name)
                by_gateway.setdefault((metadata.namespace, owner), []).append((resource, reference))
    return tuple(GatewayObjects(*place, tuple(objects)) for place, objects in sorted(by_gateway.items()))


async def remove(client: Client, gateways: Collection[GatewayObjects]) -> AsyncGenerator[ObjectReference, None]:
    for each in gateways:
        for resource, reference in each.objects:
            await client.delete(resource, reference.name, namespace=reference.namespace)
            yield reference


async def pods(client: Client, gateways: Collection[GatewayObjects]) -> dict[str, int]:
    """Return the number of pods that these Gateways' Deployments still have, by namespace."""
    counted: dict[str, int] = {}
    for each in gateways:
        if any(resource is DEPLOYMENTS for resource, _ in each.objects):
            labels = f"{GATEWAY_NAME}={each.gateway}"
            there = (await client.list(PODS, _Object, namespace=each.namespace, labels=labels)).items
            counted[each.namespace] = counted.get(each.namespace, 0) + len(there)
    return {namespace: count for namespace, count in sorted(counted.items()) if count}


async def until_ended(client: Client, gateways: Collection[GatewayObjects], patience: float) -> dict[str, int]:
    """Wait up to `patience` seconds until these Gateways have no pods. Returns the number of remaining pods by
    namespace."""
    deadline = asyncio.get_running_loop().time() + patience
    while left := await pods(client, gateways):
        if asyncio.get_running_loop().time() > deadline:
            break
        await asyncio.sleep(_LOOK_SECONDS)
    return left


class _Owner(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    name: str = ""
    api_version: str = ""

    @property
    def is_gateway(self) -> bool:
        return self.kind == "Gateway" and self.api_version.partition("/")[0] == GROUP


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    owner_references: tuple[_Owner, ...] | None = None


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata
