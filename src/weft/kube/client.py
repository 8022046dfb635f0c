"""One API server, asked over HTTP: typed objects in and out, one request each, or a stream of watch lines.

The sources and writers of this package come in with a Resource. aiohttp's errors are renamed here. Rule: every answer
has a deadline and a size it may not pass, nothing is tried again behind the caller's back (only once, with newer
credentials, after 401), and no token is ever logged."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any, Generic, TypeVar, overload

import aiohttp
import msgspec

from weft import __version__
from weft.kube.answers import Groups, ObjectList, Resources, Status, decoded, read, refusal
from weft.kube.config import Connection
from weft.kube.credentials import Credentials
from weft.kube.error import ApiError, ApiUnavailable, KubeError
from weft.kube.resource import Resource, known, named

T = TypeVar("T")

TIMEOUT = 30.0  # seconds for a whole request
PAGE = 500  # objects at a time, as kubectl asks
_CONNECT_TIMEOUT = 10.0
_MOST_AT_ONCE = 32  # requests, watches not counted: a burst of token reviews must not take all sockets
_LONGEST_ANSWER = 256 << 20  # a page of 500 objects of etcd's largest size would not be asked for by anyone sane
_LONGEST_REFUSAL = 1 << 20
_LONGEST_LINE = 16 << 20  # etcd's largest object is 1.5 MiB by default, its JSON some times that
_READ_BUFFER = 1 << 20
_JSON = "application/json"


class PatchType(StrEnum):
    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"  # JSON is YAML


class Listed(msgspec.Struct, Generic[T], frozen=True):
    items: tuple[T, ...]
    resource_version: str


class Page(msgspec.Struct, Generic[T], frozen=True):
    items: tuple[T, ...]
    resource_version: str
    more: str = ""  # where the next page goes on


class Client:
    """Make it inside a running event loop or outside; the session opens with the first request."""

    def __init__(self, connection: Connection, *, timeout: float = TIMEOUT, user_agent: str = "") -> None:
        self.connection = connection
        self._timeout = timeout
        self._user_agent = user_agent or f"weft/{__version__}"
        self._credentials = Credentials(connection)
        self._opened: aiohttp.ClientSession | None = None
        self._closed = False
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)
        self._found: dict[tuple[str, str], Resource] = {}

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._closed = True
        if self._opened is not None:
            await self._opened.close()

    # Reading

    @overload
    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> dict[str, Any]: ...
    @overload
    async def get(self, resource: Resource, name: str, type_: type[T], *, namespace: str = "") -> T: ...
    async def get(self, resource: Resource, name: str, type_: Any = dict, *, namespace: str = "") -> Any:
        path = _one(resource, name, namespace)
        return decoded(await self.raw("GET", path), type_, path)

    async def list(
        self, resource: Resource, type_: type[T], *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Listed[T]:
        """All of them, at one version. ApiError.expired if it took so long that the server forgot that version."""
        items: Any = []
        version = ""
        async for page in self.pages(resource, type_, namespace=namespace, labels=labels, fields=fields):
            items += page.items
            version = page.resource_version
        return Listed(tuple(items), version)

    async def pages(
        self,
        resource: Resource,
        type_: type[T],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = PAGE,
    ) -> AsyncGenerator[Page[T], None]:
        """`type_` may be msgspec.Raw, to decode each object on its own."""
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
        resource: Resource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        options: Mapping[str, str] | None = None,
        inactivity: float = 150.0,
    ) -> AsyncGenerator[Sequence[bytes], None]:
        """Lines as the server writes them: first none, when the watch is open, then what can be read at once comes at
        once. It ends when the server ends it.
        `options`: resourceVersion, allowWatchBookmarks, timeoutSeconds, sendInitialEvents… `inactivity`: seconds
        without a byte after which the server is taken for dead (ApiUnavailable)."""
        query = _selection(labels, fields) | {"watch": "true"} | dict(options or {})
        path = resource.path(namespace)
        timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT_TIMEOUT, sock_read=inactivity)
        rest = b""
        async with self._answer("GET", path, query=query, timeout=timeout) as answer:
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
        self, resource: Resource, manifest: Any, *, namespace: str = ..., name: str = ..., subresource: str = ...
    ) -> dict[str, Any]: ...
    @overload
    async def create(
        self,
        resource: Resource,
        manifest: Any,
        type_: type[T],
        *,
        namespace: str = ...,
        name: str = ...,
        subresource: str = ...,
    ) -> T: ...
    async def create(
        self,
        resource: Resource,
        manifest: Any,
        type_: Any = dict,
        *,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
    ) -> Any:
        """`name` only with a subresource that is created, such as serviceaccounts/NAME/token. ApiError.already_exists
        if somebody was first."""
        path = resource.path(_namespace(resource, namespace), name, subresource)
        return decoded(await self.raw("POST", path, body=msgspec.json.encode(manifest)), type_, path)

    async def replace(
        self, resource: Resource, name: str, manifest: Any, *, namespace: str = "", subresource: str = ""
    ) -> dict[str, Any]:
        """With metadata.resourceVersion in it: ApiError.conflict if somebody wrote meanwhile."""
        path = _one(resource, name, namespace, subresource)
        replaced: dict[str, Any] = decoded(await self.raw("PUT", path, body=msgspec.json.encode(manifest)), dict, path)
        return replaced

    @overload
    async def patch(
        self,
        resource: Resource,
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
        resource: Resource,
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
        resource: Resource,
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
        """Server-side apply of the fields in `manifest`, which become `manager`'s. ApiError.conflict (`causes` say
        which fields, and whose they are) unless `force`. A namespaced object must say its namespace."""
        who = named(manifest)
        resource = await self.find(who.api_version, who.kind)
        path = _one(resource, who.name, who.namespace, subresource)
        query = (
            {"fieldManager": manager} | ({"force": "true"} if force else {}) | ({"dryRun": "All"} if dry_run else {})
        )
        body = msgspec.json.encode(manifest)
        answer = await self.raw("PATCH", path, query=query, body=body, content_type=PatchType.APPLY)
        applied: dict[str, Any] = decoded(answer, dict, path)
        return applied

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        propagation: str = "Background",
    ) -> bool:
        """Whether there was something to delete. `uid`: only this very object (ApiError.conflict if it is another)."""
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

    # Finding out

    async def find(self, api_version: str, kind: str) -> Resource:
        """Where objects of that kind are, as the server tells. ApiError.not_found if it has no such kind."""
        if (resource := known(api_version, kind) or self._found.get((api_version, kind))) is not None:
            return resource
        group, _, version = api_version.rpartition("/")
        path = Resource(group, version, "", "").group_path
        for one in decoded(await self.raw("GET", path), Resources, path).resources:
            if "/" not in one.name:  # not a subresource
                self._found[api_version, one.kind] = Resource(group, version, one.name, one.kind, one.namespaced)
        try:
            return self._found[api_version, kind]
        except KeyError:
            what = f"the server has no kind {kind} in {api_version}"
            raise ApiError(404, "NotFound", what, request=f"GET {path}") from None

    async def exists(self, resource: Resource) -> bool:
        """Whether the server serves that resource: a certain answer, or an exception. A 404 alone is not certain, since
        whatever stands in the server's place may say it as well."""
        if resource.group:
            groups = decoded(await self.raw("GET", "/apis"), Groups, "/apis")
            if groups.kind != "APIGroupList":
                raise ApiUnavailable("the answer is not an API server's", where="GET /apis")
            versions = (version.group_version for group in groups.groups for version in group.versions)
            if resource.api_version not in versions:
                return False
        resources = decoded(await self.raw("GET", resource.group_path), Resources, resource.group_path)
        if resources.kind != "APIResourceList":
            raise ApiUnavailable("the answer is not an API server's", where=f"GET {resource.group_path}")
        return any(one.name == resource.plural for one in resources.resources)

    @asynccontextmanager
    async def upgrade(
        self, path: str, *, protocol: str, query: Mapping[str, str] | None = None, longest: int = 4 << 20
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A WebSocket that speaks `protocol`. ApiError if the server refuses, ApiUnavailable if it does not answer."""
        where = f"GET {path}"
        opened = await self._open(path, protocol, query or {}, longest, where)
        try:
            if opened.protocol != protocol:
                raise ApiUnavailable(f"the API server does not speak {protocol}", where=where)
            yield opened
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            raise ApiUnavailable(f"the connection broke: {error or type(error).__name__}", where=where) from error
        finally:
            await opened.close()

    async def raw(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = _JSON,
        timeout: float | None = None,
    ) -> bytes:
        """The body of a good answer. ApiError if the server refuses, ApiUnavailable if it does not answer in time."""
        seconds = self._timeout if timeout is None else timeout
        where = f"{method} {path}"
        try:
            async with asyncio.timeout(seconds), self._places:
                limits = aiohttp.ClientTimeout(sock_connect=_CONNECT_TIMEOUT)
                async with self._answer(
                    method, path, query=query, body=body, kind=content_type, timeout=limits
                ) as answer:
                    return await read(answer, where, _LONGEST_ANSWER)
        except TimeoutError as error:
            raise ApiUnavailable(f"no answer within {seconds:g} s", _hint(self.connection), where=where) from error

    async def _open(
        self, path: str, protocol: str, query: Mapping[str, str], longest: int, where: str
    ) -> aiohttp.ClientWebSocketResponse:
        try:
            async with asyncio.timeout(self._timeout):
                try:
                    return await self._handshake(path, protocol, query, longest)
                except aiohttp.WSServerHandshakeError as error:
                    if error.status != 401 or not await self._credentials.renew():
                        raise
                return await self._handshake(path, protocol, query, longest)
        except aiohttp.WSServerHandshakeError as error:
            raise await self._said(path, query, error.status, where) from error
        except TimeoutError as error:
            raise ApiUnavailable(
                f"no answer within {self._timeout:g} s", _hint(self.connection), where=where
            ) from error
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            said = str(error) or type(error).__name__
            raise ApiUnavailable(
                f"the API server does not answer: {said}", _hint(self.connection), where=where
            ) from error

    async def _handshake(
        self, path: str, protocol: str, query: Mapping[str, str], longest: int
    ) -> aiohttp.ClientWebSocketResponse:
        return await self._session().ws_connect(
            self.connection.server + path,
            params=dict(query),
            protocols=(protocol,),
            # A kubelet refuses who wants JSON from it.
            headers=[*await self._credentials.headers(), ("Accept", "*/*")],
            ssl=self._credentials.tls(),
            server_hostname=self.connection.server_name or None,
            proxy=self.connection.proxy_url or None,
            max_msg_size=longest,
        )

    async def _said(self, path: str, query: Mapping[str, str], status: int, where: str) -> ApiError:
        """A refusal in the server's words. Of a refused WebSocket only the status is told, so we ask plainly."""
        try:
            await self.raw("GET", path, query=query)
        except ApiError as error:
            if error.status == status:
                return error
        except KubeError:
            pass
        return Status().error(status, request=where)

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        kind: str = _JSON,
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that is good; its body is still to be read."""
        where = f"{method} {path}"
        try:
            for retry in (True, False):
                headers = [*await self._credentials.headers(), *([("Content-Type", kind)] if body is not None else [])]
                async with self._session().request(
                    method,
                    self.connection.server + path,
                    params=dict(query or {}),
                    data=body,
                    headers=headers,
                    ssl=self._credentials.tls(),
                    server_hostname=self.connection.server_name or None,
                    proxy=self.connection.proxy_url or None,
                    timeout=timeout,
                    allow_redirects=False,
                ) as answer:
                    if answer.status == 401 and retry and await self._credentials.renew():
                        continue
                    if answer.status not in (200, 201, 202):
                        raise refusal(answer, await read(answer, where, _LONGEST_REFUSAL), where)
                    yield answer
                    return
        except aiohttp.ClientConnectorCertificateError as error:
            hint = "the CA in the kubeconfig, or tls-server-name, does not fit this server"
            raise ApiUnavailable(
                f"the API server's certificate is not believed: {error.certificate_error}", hint, where=where
            ) from error
        except aiohttp.SocketTimeoutError as error:
            raise ApiUnavailable("the API server has gone silent", _hint(self.connection), where=where) from error
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            said = str(error) or type(error).__name__
            raise ApiUnavailable(
                f"the API server does not answer: {said}", _hint(self.connection), where=where
            ) from error

    def _session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise KubeError("this client is closed")
        if self._opened is None:
            self._opened = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0, socket_factory=_socket),
                headers={"Accept": _JSON, "Accept-Encoding": "identity", "User-Agent": self._user_agent},
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=_READ_BUFFER,
            )
        return self._opened


def _socket(address: Any) -> socket.socket:
    """The kernel asks after a silent peer, so that a machine that is gone is noticed within half a minute."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def _selection(labels: str, fields: str) -> dict[str, str]:
    return ({"labelSelector": labels} if labels else {}) | ({"fieldSelector": fields} if fields else {})


def _namespace(resource: Resource, namespace: str) -> str:
    if resource.namespaced and not namespace:
        raise KubeError(f"a {resource.kind} is in a namespace; which one is not said")
    return namespace


def _one(resource: Resource, name: str, namespace: str, subresource: str = "") -> str:
    """Never the collection: a delete without a name would delete everything."""
    if not name:
        raise KubeError(f"which {resource.kind} is not said")
    return resource.path(_namespace(resource, namespace), name, subresource)


def _hint(connection: Connection) -> str:
    return f"is it up? {connection.server}/readyz, from {connection.source or 'the connection'}"
