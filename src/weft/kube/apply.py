"""Applies a set of objects to the cluster in their order, and removes the objects that an older version of the set
contained. Uses server-side apply: fields of other managers are kept unless they conflict with weft's.

`weft install` and related commands use this module. Rule: applying twice has the same result as applying once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from weft.base.backoff import Backoff
from weft.kube.client import Client
from weft.kube.error import ApiError, KubeError
from weft.kube.resource import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CSI_DRIVERS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    POD_DISRUPTION_BUDGETS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_WEBHOOKS,
    ObjectReference,
    ResourceKind,
    named,
)

MANAGER = "weft-install"
_PATIENCE = 30.0  # seconds to wait until a new kind is served, or until a busy API server accepts a request
_REMOVAL = 90.0  # seconds to wait until an object that is being deleted no longer exists
_LOOK_SECONDS = 0.1

# The kinds that weft installs, in the order of removal. Webhooks are first: a webhook without a server would block the
# creation of all pods.
OWNED: tuple[ResourceKind, ...] = (
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    DEPLOYMENTS,
    DAEMON_SETS,
    POD_DISRUPTION_BUDGETS,
    SERVICES,
    CSI_DRIVERS,
    CONFIG_MAPS,
    ROLE_BINDINGS,
    ROLES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    SERVICE_ACCOUNTS,
)


class ApplyOutcome(StrEnum):
    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REMOVED = "removed"


class Done(msgspec.Struct, frozen=True):
    what: ObjectReference
    outcome: ApplyOutcome


async def apply(
    client: Client, objects: Iterable[Mapping[str, Any]], *, dry_run: bool = False
) -> AsyncGenerator[Done, None]:
    """Apply `objects` in their order and yield the result for each object. Before objects of a new kind are sent, waits
    until the API server serves the kind. Raises ApiError at the first failure and does not undo what was applied until
    then: applying again continues from there. `dry_run`: the server checks each object and stores nothing."""
    missing: set[str] = set()  # namespaces that a dry run would have created
    groups: set[str] = set()  # API groups with new kinds
    for each in objects:
        reference = named(each)
        resource = await _served(client, reference, patiently=reference.api_version.partition("/")[0] in groups)
        before = await _there(client, resource, reference)
        if before is not None and "deletionTimestamp" in before["metadata"] and not dry_run:
            await _gone(client, resource, reference)
            before = None
        if dry_run and reference.namespace in missing:
            yield Done(reference, ApplyOutcome.CREATED)
            continue
        after = await _patiently(client, each, dry_run=dry_run)
        if dry_run and reference.kind == "Namespace" and before is None:
            missing.add(reference.name)
        if reference.kind == "CustomResourceDefinition" and not dry_run:
            await _established(client, reference)
            groups.add(str(each["spec"]["group"]))
        if before is None:
            yield Done(reference, ApplyOutcome.CREATED)
        else:
            yield Done(
                reference, ApplyOutcome.UNCHANGED if _content(before) == _content(after) else ApplyOutcome.CHANGED
            )


async def owned(
    client: Client, labels: str, kinds: Sequence[ResourceKind] = OWNED
) -> AsyncGenerator[tuple[ResourceKind, ObjectReference], None]:
    """Yield (kind, reference) of all objects with these labels, in the order of `kinds`, which is the order in which
    the objects can be removed."""
    for resource in kinds:
        for item in (await client.list(resource, _Object, labels=labels)).items:
            reference = ObjectReference(
                resource.api_version, resource.kind, item.metadata.namespace, item.metadata.name
            )
            yield resource, reference


async def remove(
    client: Client,
    labels: str,
    *,
    keep: Sequence[Mapping[str, Any]] = (),
    kinds: Sequence[ResourceKind] = OWNED,
    dry_run: bool = False,
) -> AsyncGenerator[Done, None]:
    """Remove the objects that have these labels and are not in `keep` (manifests). `kinds`: the kinds to search, in
    the order of removal. Yields the result for each object. `dry_run`: only yield the results, remove nothing."""
    kept = {named(each) for each in keep}
    async for resource, reference in owned(client, labels, kinds):
        if reference not in kept:
            if not dry_run:
                await client.delete(resource, reference.name, namespace=reference.namespace)
            yield Done(reference, ApplyOutcome.REMOVED)


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    namespace: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str
    message: str = ""


class _DefinitionStatus(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] | None = None


class _Definition(msgspec.Struct, frozen=True):
    status: _DefinitionStatus = _DefinitionStatus()


async def _there(client: Client, resource: ResourceKind, reference: ObjectReference) -> dict[str, Any] | None:
    try:
        return await client.get(resource, reference.name, namespace=reference.namespace)
    except ApiError as error:
        if error.not_found:
            return None
        raise


async def _gone(client: Client, resource: ResourceKind, reference: ObjectReference) -> None:
    """Wait until the object `reference`, which is being deleted, no longer exists. Until then the API server would
    accept changes to the object, and they would be lost with it. Deleting a CustomResourceDefinition with all its
    objects takes seconds. Raises KubeError after _REMOVAL seconds."""
    deadline = asyncio.get_running_loop().time() + _REMOVAL
    while (current := await _there(client, resource, reference)) is not None and "deletionTimestamp" in current[
        "metadata"
    ]:
        if asyncio.get_running_loop().time() > deadline:
            hint = f"try: kubectl get {resource.plural} {reference.name} -o yaml"
            raise KubeError(
                "the object is being deleted, and a finalizer blocks the deletion", hint, where=str(reference)
            )
        await asyncio.sleep(_LOOK_SECONDS)


async def _served(client: Client, reference: ObjectReference, *, patiently: bool) -> ResourceKind:
    """Look up the kind of the object `reference` in the API server's discovery. `patiently`: if the kind is missing,
    wait for it, since a new kind appears in discovery a little after it is established."""
    deadline = asyncio.get_running_loop().time() + _PATIENCE
    while True:
        try:
            return await client.find(reference.api_version, reference.kind)
        except ApiError as error:
            if not (patiently and error.not_found) or asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(_LOOK_SECONDS)


def _content(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object without `status` and without the metadata that the API server maintains (managedFields,
    resourceVersion, generation)."""
    metadata = {name: value for name, value in manifest["metadata"].items() if name not in _COUNTED}
    return {**{name: value for name, value in manifest.items() if name != "status"}, "metadata": metadata}


_COUNTED = frozenset({"managedFields", "resourceVersion", "generation"})


async def _patiently(client: Client, each: Mapping[str, Any], *, dry_run: bool) -> dict[str, Any]:
    backoff = Backoff(0.2, 3.0)
    deadline = asyncio.get_running_loop().time() + _PATIENCE
    while True:
        try:
            return await client.apply(each, manager=MANAGER, force=True, dry_run=dry_run)
        except KubeError as error:
            pause = backoff.next()
            if not error.retryable or asyncio.get_running_loop().time() + pause > deadline:
                raise
        await asyncio.sleep(pause)


async def _established(client: Client, reference: ObjectReference) -> None:
    deadline = asyncio.get_running_loop().time() + _PATIENCE
    while True:
        definition = await client.get(CUSTOM_RESOURCE_DEFINITIONS, reference.name, _Definition)
        conditions = {each.type: each for each in definition.status.conditions or ()}
        if (established := conditions.get("Established")) is not None and established.status == "True":
            return
        if asyncio.get_running_loop().time() > deadline:
            names = conditions.get("NamesAccepted")
            why = names.message if names is not None else "the API server gives no reason"
            raise KubeError(
                f"the kind is not served: {why}", f"try: kubectl describe crd {reference.name}", where=str(reference)
            )
        await asyncio.sleep(_LOOK_SECONDS)
