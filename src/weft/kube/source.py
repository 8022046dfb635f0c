"""Watches everything that a mesh reads from Kubernetes, and joins it into one stream of batches: written objects as
documents for `api/`, pods and EndpointSlices as values of the model, and problems with the API server.

There is one reflector per kind. A kind of Istio or the Gateway API is watched while its CustomResourceDefinition
exists. Rule: the first batch has all objects of all kinds, so that no reader ever sees half a mesh. No response or
failure of the API server ends the stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Any

import msgspec

from weft.api.document import Change
from weft.api.kinds import key_kind
from weft.base.problem import Problem
from weft.kube.client import Client
from weft.kube.definitions import ServedDefinition, served
from weft.kube.documents import Documents
from weft.kube.endpoint_slices import slice_of
from weft.kube.objects import DefinitionObject, JudgedObject, NamedObject, PodObject, Slice, WrittenObject
from weft.kube.pods import PodIndex, instance_of, is_over, record_of
from weft.kube.reflector import Event, WatchTiming, reflect
from weft.kube.resource import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    ENDPOINT_SLICES,
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    SERVICES,
    ResourceKind,
)
from weft.kube.status import CarriedStatus, carried
from weft.model.instance import Instance
from weft.model.names import ObjectKey
from weft.model.value import Value

log = logging.getLogger("weft.kube")

_REGION, _ZONE, _SUBZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.istio.io/subzone"
_WAITING = 64  # batches of events that may wait to be joined, before the reflectors wait
_PATIENCE = 10.0  # seconds without a first list before the missing kinds are logged
_AFTER_DEFECT = 5.0  # seconds before a reflector that failed is started again


class ClusterBatch(msgspec.Struct, frozen=True):
    changes: tuple[Change, ...] = ()
    values: tuple[tuple[ObjectKey, tuple[Value, ...]], ...] = ()
    statuses: tuple[tuple[ObjectKey, CarriedStatus | None], ...] = ()  # weft's conditions; None: deleted
    problems: tuple[Problem, ...] = ()  # all current problems with the API server


async def watch(
    client: Client,
    *,
    root_namespace: str = "istio-system",
    revision: str = "default",
    pods: PodIndex | None = None,
    revisions: dict[ObjectKey, str] | None = None,
    timing: WatchTiming = WatchTiming(),  # noqa: B008 - frozen
) -> AsyncGenerator[ClusterBatch, None]:
    """Yield batches forever; close the generator to stop. `revision`: the revision of the control plane, which
    determines the ConfigMap with its settings. `root_namespace`: the namespace of that ConfigMap. `pods`: an index that
    is updated with each pod before the batch with this pod is yielded. `revisions`: a mapping that is updated in the
    same way, with the resourceVersion of each written object."""
    feed = _Feed(client, timing)
    join = _Join(pods if pods is not None else PodIndex(), revisions if revisions is not None else {}, feed)
    config = "istio" if revision in ("", "default") else f"istio-{revision}"
    feed.follow(CUSTOM_RESOURCE_DEFINITIONS, DefinitionObject, join.definition)
    feed.follow(NODES, NamedObject, join.node)
    feed.follow(NAMESPACES, NamedObject, join.written)
    feed.follow(SERVICE_ACCOUNTS, NamedObject, join.written)
    feed.follow(CONFIG_MAPS, WrittenObject, join.written, namespace=root_namespace, fields=f"metadata.name={config}")
    feed.follow(SERVICES, WrittenObject, join.written)
    feed.follow(PODS, PodObject, join.pod)
    feed.follow(ENDPOINT_SLICES, Slice, join.slice)
    try:
        await feed.all_listed()
        yield join.batch(feed.problems())
        while True:
            problems = feed.problems()
            await feed.next()
            if (
                (batch := join.batch(feed.problems())).changes
                or batch.values
                or batch.statuses
                or batch.problems != problems
            ):
                yield batch
    finally:
        await feed.close()


Take = Callable[[ResourceKind, str, str, Any], None]  # kind, namespace, name, the object or None if it was deleted


class _Follower:
    """The watch of one kind. `known`: the objects of the kind that the mesh has, each as (namespace, name)."""

    def __init__(self, resource: ResourceKind, take: Take) -> None:
        self.resource, self.take = resource, take
        self.known: set[tuple[str, str]] = set()
        self.task: asyncio.Task[None] | None = None


class _Feed:
    """Runs one reflector per kind and processes their events one after the other."""

    def __init__(self, client: Client, timing: WatchTiming) -> None:
        self._client = client
        self._timing = timing
        self._arrived: asyncio.Queue[tuple[_Follower, tuple[Event[Any], ...], bool] | None] = asyncio.Queue(_WAITING)
        self._followers: set[_Follower] = set()
        self._unlisted: set[_Follower] = set()
        self._problems: dict[_Follower, Problem] = {}

    def follow(
        self, resource: ResourceKind, type_: type[Any], take: Take, *, namespace: str = "", fields: str = ""
    ) -> _Follower:
        follower = _Follower(resource, take)
        self._followers.add(follower)
        self._unlisted.add(follower)
        follower.task = asyncio.create_task(self._run(follower, type_, {"namespace": namespace, "fields": fields}))
        return follower

    def leave(self, follower: _Follower) -> None:
        """Stop watching the kind of `follower`, which was removed or is now watched in another version. The objects of
        the kind stay in the mesh: the caller removes them, or lets the watch of the other version replace them."""
        assert follower.task is not None  # noqa: S101 - `follow` made it
        follower.task.cancel()
        self._followers.discard(follower)
        self._unlisted.discard(follower)
        self._problems.pop(follower, None)

    def problems(self) -> tuple[Problem, ...]:
        return tuple(sorted(set(self._problems.values()), key=str))

    async def all_listed(self) -> None:
        while self._unlisted:
            try:
                async with asyncio.timeout(_PATIENCE):
                    await self.next()
            except TimeoutError:
                awaited = ", ".join(sorted(str(each.resource) for each in self._unlisted))
                log.warning("still waiting for the API server to list %s", awaited)

    async def next(self) -> None:
        """Process all events that have arrived; wait if there are none."""
        self._take_in(await self._arrived.get())
        while not self._arrived.empty():
            self._take_in(self._arrived.get_nowait())

    def _take_in(self, arrived: tuple[_Follower, tuple[Event[Any], ...], bool] | None) -> None:
        if arrived is None:
            return
        follower, events, everything = arrived
        if follower not in self._followers:
            return
        if everything:
            listed = {(event.namespace, event.name) for event in events}
            for namespace, name in follower.known - listed:
                self._take(follower, namespace, name, None)
            follower.known &= listed
        for event in events:
            self._take(follower, event.namespace, event.name, event.object)
        self._unlisted.discard(follower)

    def _take(self, follower: _Follower, namespace: str, name: str, item: Any) -> None:
        try:
            follower.take(follower.resource, namespace, name, item)
        except Exception:  # a bug in weft: the other objects are still processed
            log.exception("cannot process %s %s/%s; its last state is kept", follower.resource.kind, namespace, name)
        if item is None:
            follower.known.discard((namespace, name))
        else:
            follower.known.add((namespace, name))

    async def _run(self, follower: _Follower, type_: type[Any], selection: dict[str, str]) -> None:
        def on_problem(problem: Problem | None) -> None:
            before = self._problems.pop(follower, None)
            if problem is not None and follower in self._followers:
                self._problems[follower] = problem
            if before != problem and self._arrived.empty():
                self._arrived.put_nowait(None)  # wakes the reader, which reports the problem

        while True:
            everything = True
            try:
                reflected = reflect(
                    self._client, follower.resource, type_, **selection, on_problem=on_problem, timing=self._timing
                )
                async with aclosing(reflected) as batches:
                    async for events in batches:
                        await self._arrived.put((follower, events, everything))
                        everything = False
            except Exception:
                log.exception("the watch of %s failed; trying again", follower.resource)
                await asyncio.sleep(_AFTER_DEFECT)

    async def close(self) -> None:
        tasks = [each.task for each in self._followers if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Join:
    """Combines the objects of all kinds. It receives one object at a time; `batch` returns everything received since
    the last batch."""

    def __init__(self, pods: PodIndex, revisions: dict[ObjectKey, str], feed: _Feed) -> None:
        self._pods = pods
        self._revisions = revisions
        self._feed = feed
        self._documents = Documents()
        self._localities: dict[str, str] = {}  # localities by node name
        self._instances: dict[tuple[str, str], Instance] = {}  # by namespace and name of the pod
        self._served: dict[
            str, tuple[ServedDefinition, _Follower]
        ] = {}  # Istio's kinds, by the name of their definition
        self._changes: dict[ObjectKey, Change] = {}
        self._values: dict[ObjectKey, tuple[Value, ...]] = {}
        self._statuses: dict[ObjectKey, CarriedStatus | None] = {}

    def batch(self, problems: tuple[Problem, ...]) -> ClusterBatch:
        batch = ClusterBatch(
            tuple(self._changes.values()), tuple(self._values.items()), tuple(self._statuses.items()), problems
        )
        self._changes, self._values, self._statuses = {}, {}, {}
        return batch

    def written(
        self, resource: ResourceKind, namespace: str, name: str, item: WrittenObject | NamedObject | None
    ) -> None:
        key = _key(resource, namespace, name)
        if item is None:
            self._revisions.pop(key, None)
            change: Change | None = self._documents.gone(key)
        else:
            self._revisions[key] = item.metadata.resource_version
            change = self._documents.change(resource, key, item)
        if change is not None:
            self._changes[key] = change

    def judged(self, resource: ResourceKind, namespace: str, name: str, item: JudgedObject | None) -> None:
        self.written(resource, namespace, name, item)
        apart = any(kind.resource == resource and kind.conditions_apart for kind, _ in self._served.values())
        self._statuses[_key(resource, namespace, name)] = None if item is None else carried(resource, item, apart=apart)

    def node(self, resource: ResourceKind, namespace: str, name: str, node: NamedObject | None) -> None:
        labels = node.metadata.labels or {} if node is not None else {}
        locality = "/".join(labels.get(each, "") for each in (_REGION, _ZONE, _SUBZONE)).rstrip("/")
        before = self._localities.pop(name, "")
        if locality:
            self._localities[name] = locality
        if before == locality:
            return
        for record in self._pods.on_node(name):
            instance = self._instances[record.key]
            if instance.locality == before:  # otherwise the pod's own label sets its locality
                self._put_instance(msgspec.structs.replace(instance, locality=locality))
                group = msgspec.structs.replace(record.group, locality=locality)
                self._pods.put(msgspec.structs.replace(record, group=group))

    def pod(self, resource: ResourceKind, namespace: str, name: str, pod: PodObject | None) -> None:
        if pod is None or is_over(pod):
            self._pods.discard(namespace, name)
            if self._instances.pop((namespace, name), None) is not None:
                self._values[ObjectKey("Pod", namespace, name)] = ()
            return
        record = record_of(pod, self._localities.get(pod.spec.node_name, ""))
        self._put_instance(instance_of(pod, record))
        self._pods.put(record)

    def _put_instance(self, instance: Instance) -> None:
        place = (instance.namespace, instance.name)
        if self._instances.get(place) != instance:
            self._instances[place] = instance
            self._values[ObjectKey("Pod", *place)] = (instance,)

    def slice(self, resource: ResourceKind, namespace: str, name: str, endpoint_slice: Slice | None) -> None:
        value = slice_of(endpoint_slice) if endpoint_slice is not None else None
        self._values[ObjectKey("EndpointSlice", namespace, name)] = (value,) if value is not None else ()

    def definition(
        self, resource: ResourceKind, namespace: str, name: str, definition: DefinitionObject | None
    ) -> None:
        """Start, change or stop the watch of a kind after its CustomResourceDefinition `name` was added, changed or
        removed (`definition` is None). If the kind is no longer served, all of its objects are removed."""
        now = served(definition) if definition is not None else None
        before, follower = self._served.get(name, (None, None))
        if now == before:
            return
        left: Iterable[tuple[str, str]] = ()
        if follower is not None:
            self._feed.leave(follower)
            left = follower.known
            del self._served[name]
        if now is None:
            for held_in, called in left:
                self.judged(follower.resource, held_in, called, None)  # type: ignore[union-attr]
            return
        log.info("reading %s as %s", now.resource, now.resource.api_version)
        new = self._feed.follow(now.resource, JudgedObject, self.judged if now.has_status else self.written)
        new.known.update(left)  # objects missing from the first list of the new watch were deleted
        self._served[name] = (now, new)


def _key(resource: ResourceKind, namespace: str, name: str) -> ObjectKey:
    return ObjectKey(key_kind(resource.api_version, resource.kind), namespace, name)
