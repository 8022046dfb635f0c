"""Reads everything that a mesh needs from Kubernetes once, with the caller's credentials. The result is an Inventory:
written objects as documents, pods and EndpointSlices as values of the model, and the installed revisions. Rule: a kind
that the caller may not read becomes a problem and does not stop the reading of other kinds. If the API server does not
answer, there is no inventory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from weft.api.document import Document
from weft.api.kinds import key_kind
from weft.api.parse import OF_MESHES
from weft.base.problem import Problem, Severity, Where
from weft.kube.client import Client
from weft.kube.definitions import served
from weft.kube.documents import document
from weft.kube.endpoint_slices import slice_of
from weft.kube.error import ApiError
from weft.kube.objects import DefinitionObject, NamedObject, PodObject, Slice, WrittenObject
from weft.kube.pods import instance_of, is_over, record_of
from weft.kube.resource import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
    SERVICES,
    STATEFUL_SETS,
    ResourceKind,
)
from weft.kube.revisions import revisions
from weft.kube.webhooks import unanswered
from weft.model.names import ObjectKey
from weft.model.value import Value

T = TypeVar("T")

_INJECTOR = "istio-sidecar-injector"
_OURS = "app.kubernetes.io/name=weft"
_OF_GROUPS = ("networking.istio.io", "extensions.istio.io", "gateway.networking.k8s.io")


class Inventory(msgspec.Struct, frozen=True):
    documents: tuple[Document, ...] = ()
    values: tuple[tuple[ObjectKey, tuple[Value, ...]], ...] = ()
    revisions: frozenset[str] = frozenset()
    injectors: Mapping[str, Mapping[str, str]] = {}  # data of the injectors' ConfigMaps, by revision
    problems: tuple[Problem, ...] = ()


async def take(client: Client, *, root_namespace: str = "istio-system", revision: str = "default") -> Inventory:
    """Read everything once and return the inventory. `revision`: the revision of weft whose settings are read, from a
    ConfigMap in `root_namespace`. Raises KubeError if the API server cannot be reached."""
    taker = _Taker(client)
    definitions = await taker.listed(CUSTOM_RESOURCE_DEFINITIONS, DefinitionObject)
    written = await asyncio.gather(
        *(taker.documents(resource, NamedObject) for resource in (NAMESPACES, SERVICE_ACCOUNTS)),
        taker.documents(SERVICES, WrittenObject),
        *(taker.documents(each.resource, WrittenObject) for each in map(served, definitions) if each is not None),
        *(
            taker.documents(resource, NamedObject)
            for resource in map(_passed_over, definitions)
            if resource is not None
        ),
        *(taker.whole(resource) for resource in (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS)),
    )
    pods, slices, maps = await asyncio.gather(
        taker.whole(PODS),
        taker.listed(ENDPOINT_SLICES, Slice),
        taker.listed(CONFIG_MAPS, WrittenObject, namespace=root_namespace),
    )
    config = "istio" if revision in ("", "default") else f"istio-{revision}"
    settings = [_document(CONFIG_MAPS, each) for each in maps if each.metadata.name == config]
    return Inventory(
        documents=(*(each for documents in written for each in documents), *settings, *pods),
        values=(*_instances(pods), *_slices(slices)),
        revisions=frozenset(each.name for each in await taker.ask(revisions(client), "deployments.apps")),
        injectors=dict(_injectors(maps)),
        problems=(*await taker.ask(unanswered(client, _OURS), "webhooks"), *taker.problems),
    )


class _Taker:
    def __init__(self, client: Client) -> None:
        self._client = client
        self.problems: list[Problem] = []

    async def listed(self, resource: ResourceKind, type_: type[T], *, namespace: str = "") -> tuple[T, ...]:
        async def items() -> tuple[T, ...]:
            return (await self._client.list(resource, type_, namespace=namespace)).items

        return tuple(await self.ask(items(), str(resource)))

    async def documents(self, resource: ResourceKind, type_: type[NamedObject] | type[WrittenObject]) -> list[Document]:
        return [_document(resource, each) for each in await self.listed(resource, type_)]

    async def whole(self, resource: ResourceKind) -> list[Document]:
        """Return all objects of a kind as documents with all their fields, which the checks of pods need."""
        documents = []
        for body in await self.listed(resource, dict):
            metadata = body.get("metadata") or {}
            key = ObjectKey(resource.kind, metadata.get("namespace", ""), metadata.get("name", ""))
            documents.append(Document(key, resource.api_version, {**body, "kind": resource.kind}))
        return documents

    async def ask(self, question: Any, named: str) -> Any:
        """Await `question`, a request to the API server, and return its result. If the API server rejects the
        request, add a problem about `named`, the name of what was to be read, and return ()."""
        try:
            return await question
        except ApiError as error:
            what = f"{named} cannot be read: {error.problem.what}"
            hint = error.problem.hint or "checks that need these objects were left out"
            self.problems.append(Problem(Where(object=named), what, hint, Severity.WARNING, "WFT0817"))
            return ()


def _document(resource: ResourceKind, written: WrittenObject | NamedObject) -> Document:
    kind = key_kind(resource.api_version, resource.kind)
    key = ObjectKey(kind, written.metadata.namespace, written.metadata.name)
    return document(resource, key, written)


def _passed_over(definition: DefinitionObject) -> ResourceKind | None:
    """Return the resource that a CustomResourceDefinition defines, if its kind changes how a mesh behaves and weft does
    not support it; else None."""
    spec = definition.spec
    version = next((each.name for each in spec.versions or () if each.served), "")
    kind = key_kind(f"{spec.group}/{version}", spec.names.kind)
    if kind not in OF_MESHES or spec.group not in _OF_GROUPS or not version:
        return None
    return ResourceKind(spec.group, version, spec.names.plural, spec.names.kind, spec.scope == "Namespaced")


def _instances(pods: Iterable[Document]) -> Iterable[tuple[ObjectKey, tuple[Value, ...]]]:
    for each in pods:
        pod = msgspec.convert(each.body, PodObject)
        if not is_over(pod):
            yield each.key, (instance_of(pod, record_of(pod)),)


def _slices(slices: Iterable[Slice]) -> Iterable[tuple[ObjectKey, tuple[Value, ...]]]:
    for each in slices:
        value = slice_of(each)
        if value is not None:
            yield ObjectKey("EndpointSlice", value.namespace, value.name), (value,)


def _injectors(maps: Iterable[WrittenObject]) -> Iterable[tuple[str, Mapping[str, str]]]:
    for each in maps:
        name = each.metadata.name
        if name != _INJECTOR and not name.startswith(f"{_INJECTOR}-"):
            continue
        data = msgspec.json.decode(each.data, type=dict[str, str]) if bytes(each.data) else {}
        yield name.removeprefix(_INJECTOR).removeprefix("-") or "default", data
