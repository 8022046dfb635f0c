"""Decodes responses of the API server: an object, a list, discovery data, or a Status with an error. The input is
bytes, the output a value or an error that names the request. Rule: no more bytes are read than the caller allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from weft.kube.error import ApiError, ApiUnavailable

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")


class ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ObjectList(msgspec.Struct, Generic[T]):
    metadata: ListMetadata
    items: list[T] | None = None


class ApiResource(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False


class ApiResources(msgspec.Struct):
    kind: str = ""
    resources: list[ApiResource] = []


class GroupVersion(msgspec.Struct, rename="camel"):
    group_version: str


class ApiGroup(msgspec.Struct):
    versions: list[GroupVersion] = []


class ApiGroups(msgspec.Struct):
    kind: str = ""
    groups: list[ApiGroup] = []


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float = 0.0
    causes: list[_Cause] | None = None


class ApiStatus(msgspec.Struct):
    """A Kubernetes `Status` object, which the API server returns instead of the requested object when a request
    fails."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: _Details | None = None

    def error(self, code: int = 0, *, request: str = "", retry_after: float = 0.0) -> ApiError:
        details = self.details or _Details()
        return ApiError(
            code or self.code,
            self.reason,
            self.message,
            request=request,
            retry_after=retry_after or details.retry_after_seconds,
            causes=tuple(f"{cause.field}: {cause.message}" for cause in details.causes or ()),
        )


async def read(answer: aiohttp.ClientResponse, where: str, most: int) -> bytes:
    chunks, size = [], 0
    while chunk := await answer.content.readany():
        size += len(chunk)
        if size > most:
            raise ApiUnavailable(f"a response of over {most:,} bytes", where=where)
        chunks.append(chunk)
    return b"".join(chunks)


def refusal(answer: aiohttp.ClientResponse, body: bytes, where: str) -> ApiError:
    header = answer.headers.get("Retry-After", "")
    retry_after = float(header) if header.isascii() and header.isdigit() else 0.0
    try:
        status = msgspec.json.decode(body, type=ApiStatus)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        status = ApiStatus()
    if status.kind != "Status":
        text = body[:200].decode(errors="replace").strip()
        status = ApiStatus(reason=answer.reason or "", message=text)
    return status.error(answer.status, request=where, retry_after=retry_after)


def decoded(body: bytes, type_: Any, path: str) -> Any:
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ApiUnavailable(f"the response cannot be decoded: {error}", where=path) from error
