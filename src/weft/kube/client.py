"""Client for the objects of one API server: typed values in and out. Each method sends one request, or returns a
stream of watch lines.

The other modules of this package pass a ResourceKind; `transport.py` sends the request. Rule: a write needs a name
and, for namespaced kinds, a namespace. Without these, the request would apply to the whole collection, so it is not
sent.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Generic, TypeVar, overload

import msgspec

from weft.kube.answers import ApiGroups, ApiResources, ObjectList, decoded
from weft.kube.config import ApiConnection
from weft.kube.error import ApiError, ApiUnavailable, KubeError
from weft.kube.resource import ResourceKind, known, named
from weft.kube.transport import TIMEOUT, Transport

T = TypeVar("T")

PAGE = 500  # objects per page, as kubectl requests
_LONGEST_LINE = 16 << 20  # etcd's largest object is 1.5 MiB by default; its JSON is several times larger


class PatchType(StrEnum):
    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"  # the body is JSON, which is valid YAML


class ListedObjects(msgspec.Struct, Generic[T], frozen=True):
    items: tuple[T, ...]
    resource_version: str


class Page(msgspec.Struct, Generic[T], frozen=True):
    items: tuple[T, ...]
    resource_version: str
    more: str = ""  # the continue token of the next page


class Client(Transport):
    def __init__(self, connection: ApiConnection, *, timeout: float = TIMEOUT, user_agent: str = "") -> None:
        super().__init__(connection, timeout=timeout, user_agent=user_agent)
        self._found: dict[tuple[str, str], ResourceKind] = {}

    # Reading

    @overload
    async def get(self, resource: ResourceKind, name: str, *, namespace: str = "") -> dict[str, Any]: ...
    @overload
    async def get(self, resource: ResourceKind, name: str, type_: type[T], *, namespace: str = "") -> T: ...
    async def get(self, resource: ResourceKind, name: str, type_: Any = dict, *, namespace: str = "") -> Any:
        path = _one(resource, name, namespace)
        return decoded(await self.raw("GET", path), type_, path)

    async def list(
        self, resource: ResourceKind, type_: type[T], *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> ListedObjects[T]:
        """Return all objects of a kind, decoded as `type_`, at one resourceVersion. `labels` and `fields`: selectors.
        Raises ApiError with `expired` if reading the pages took so long that the server no longer has that version."""
        items: Any = []
        version = ""
        async for page in self.pages(resource, type_, namespace=namespace, labels=labels, fields=fields):
            items += page.items
            version = page.resource_version
        return ListedObjects(tuple(items), version)

    async def pages(
        self,
        resource: ResourceKind,
        type_: type[T],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = PAGE,
    ) -> AsyncGenerator[Page[T], None]:
        """Yield all objects of a kind that the selectors `labels` and `fields` select, in pages of up to `limit`
        objects. `type_` may be msgspec.Raw, so that the caller decodes each object separately."""
        query = _selection(labels, fields) | {"limit": str(limit)}
        path = resource.path(namespace)
        while True:
            listed = decoded(await self.raw("GET", path, query=query), ObjectList[type_], path)  # type: ignore[valid-type]
            yield Page(tuple(listed.items or ()), listed.metadata.resource_version, listed.metadata.continue_)
            if not listed.metadata.continue_:
                return
            query["continue"] = listed.metadata.continue_

    async def watch(
        self,
        resource: ResourceKind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        options: Mapping[str, str] | None = None,
        inactivity: float = 150.0,
    ) -> AsyncGenerator[Sequence[bytes], None]:
        """Yield the lines of a watch in batches: first an empty batch, when the watch is open, then all lines that can
        be read at once. The generator ends when the server ends the watch. `options`: resourceVersion,
        allowWatchBookmarks, timeoutSeconds, sendInitialEvents… `inactivity`: seconds without a byte after which the
        server is considered dead (ApiUnavailable). `labels` and `fields`: selectors."""
        query = _selection(labels, fields) | {"watch": "true"} | dict(options or {})
        path = resource.path(namespace)
        rest = b""
        async with self.stream(path, query=query, inactivity=inactivity) as answer:
            yield ()
            while chunk := await answer.content.readany():
                *lines, rest = (rest + chunk).split(b"\n")
                if max(map(len, (rest, *lines))) > _LONGEST_LINE:
                    raise ApiUnavailable(f"a watch line of over {_LONGEST_LINE:,} bytes", where=f"GET {path}")
                if lines:
                    yield lines

    # Writing

    @overload
    async def create(
        self, resource: ResourceKind, manifest: Any, *, namespace: str = ..., name: str = ..., subresource: str = ...
    ) -> dict[str, Any]: ...
    @overload
    async def create(
        self,
        resource: ResourceKind,
        manifest: Any,
        type_: type[T],
        *,
        namespace: str = ...,
        name: str = ...,
        subresource: str = ...,
    ) -> T: ...
    async def create(
        self,
        resource: ResourceKind,
        manifest: Any,
        type_: Any = dict,
        *,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
    ) -> Any:
        """Create an object and return the server's response as `type_`. With `name` and `subresource`, create a
        subresource of an existing object, such as serviceaccounts/NAME/token. Raises ApiError with
        `already_exists` if the object exists."""
        path = resource.path(_namespace(resource, namespace), name, subresource)
        return decoded(await self.raw("POST", path, body=msgspec.json.encode(manifest)), type_, path)

    async def replace(
        self, resource: ResourceKind, name: str, manifest: Any, *, namespace: str = "", subresource: str = ""
    ) -> dict[str, Any]:
        """Replace an object and return it as stored. `manifest` needs metadata.resourceVersion: raises ApiError with
        `conflict` if the object was changed meanwhile."""
        path = _one(resource, name, namespace, subresource)
        replaced: dict[str, Any] = decoded(await self.raw("PUT", path, body=msgspec.json.encode(manifest)), dict, path)
        return replaced

    @overload
    async def patch(
        self,
        resource: ResourceKind,
        name: str,
        patch: Any,
        *,
        namespace: str = ...,
        subresource: str = ...,
        patch_type: PatchType = ...,
        manager: str = ...,
    ) -> dict[str, Any]: ...
    @overload
    async def patch(
        self,
        resource: ResourceKind,
        name: str,
        patch: Any,
        type_: type[T],
        *,
        namespace: str = ...,
        subresource: str = ...,
        patch_type: PatchType = ...,
        manager: str = ...,
    ) -> T: ...
    async def patch(
        self,
        resource: ResourceKind,
        name: str,
        patch: Any,
        type_: Any = dict,
        *,
        namespace: str = "",
        subresource: str = "",
        patch_type: PatchType = PatchType.MERGE,
        manager: str = "weft",
    ) -> Any:
        path = _one(resource, name, namespace, subresource)
        body = msgspec.json.encode(patch)
        query = {"fieldManager": manager}
        answer = await self.raw("PATCH", path, query=query, body=body, content_type=patch_type)
        return decoded(answer, type_, path)

    async def apply(
        self,
        manifest: Mapping[str, Any],
        *,
        manager: str,
        force: bool = False,
        subresource: str = "",
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Send a server-side apply of the fields in `manifest` and return the object as stored. `manager` becomes the
        field manager of these fields. Unless `force` is set, raises ApiError with `conflict` if another manager has one
        of the fields; its `causes` name the fields and their managers. A namespaced object must have its namespace.
        `dry_run`: the server checks the request and stores nothing."""
        reference = named(manifest)
        resource = await self.find(reference.api_version, reference.kind)
        path = _one(resource, reference.name, reference.namespace, subresource)
        query = (
            {"fieldManager": manager} | ({"force": "true"} if force else {}) | ({"dryRun": "All"} if dry_run else {})
        )
        body = msgspec.json.encode(manifest)
        answer = await self.raw("PATCH", path, query=query, body=body, content_type=PatchType.APPLY)
        applied: dict[str, Any] = decoded(answer, dict, path)
        return applied

    async def delete(
        self,
        resource: ResourceKind,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        propagation: str = "Background",
    ) -> bool:
        """Delete an object. Returns whether the object existed. `uid`: delete the object only if it has this uid;
        otherwise raises ApiError with `conflict`. `propagation`: how Kubernetes deletes the objects that the object
        owns."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
            **({"preconditions": {"uid": uid}} if uid else {}),
        }
        try:
            await self.raw("DELETE", _one(resource, name, namespace), body=msgspec.json.encode(options))
        except ApiError as error:
            if error.not_found:
                return False
            raise
        return True

    # Discovery

    async def find(self, api_version: str, kind: str) -> ResourceKind:
        """Return the resource of a kind, from the server's discovery. Raises ApiError with `not_found` if the server
        has no such kind."""
        if (resource := known(api_version, kind) or self._found.get((api_version, kind))) is not None:
            return resource
        group, _, version = api_version.rpartition("/")
        path = ResourceKind(group, version, "", "").group_path
        for one in decoded(await self.raw("GET", path), ApiResources, path).resources:
            if "/" not in one.name:  # not a subresource
                self._found[api_version, one.kind] = ResourceKind(group, version, one.name, one.kind, one.namespaced)
        try:
            return self._found[api_version, kind]
        except KeyError:
            what = f"the server has no kind {kind} in {api_version}"
            raise ApiError(404, "NotFound", what, request=f"GET {path}") from None

    async def exists(self, resource: ResourceKind) -> bool:
        """Whether the server serves that resource. Raises an exception if this cannot be determined for certain: a
        404 alone is not certain, since another server or proxy at the same address may also return 404."""
        if resource.group:
            groups = decoded(await self.raw("GET", "/apis"), ApiGroups, "/apis")
            if groups.kind != "APIGroupList":
                raise ApiUnavailable("the response is not an API server's", where="GET /apis")
            versions = (version.group_version for group in groups.groups for version in group.versions)
            if resource.api_version not in versions:
                return False
        resources = decoded(await self.raw("GET", resource.group_path), ApiResources, resource.group_path)
        if resources.kind != "APIResourceList":
            raise ApiUnavailable("the response is not an API server's", where=f"GET {resource.group_path}")
        return any(one.name == resource.plural for one in resources.resources)


def _selection(labels: str, fields: str) -> dict[str, str]:
    return ({"labelSelector": labels} if labels else {}) | ({"fieldSelector": fields} if fields else {})


def _namespace(resource: ResourceKind, namespace: str) -> str:
    if resource.namespaced and not namespace:
        raise KubeError(f"a {resource.kind} needs a namespace")
    return namespace


def _one(resource: ResourceKind, name: str, namespace: str, subresource: str = "") -> str:
    """Return the path of one object, or of its subresource. Raises KubeError without a name: the path would be that of
    the collection, and a delete would delete everything."""
    if not name:
        raise KubeError(f"a {resource.kind} needs a name")
    return resource.path(_namespace(resource, namespace), name, subresource)
