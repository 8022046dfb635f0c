"""Parses the bytes of discovery requests into an `XdsRequest` and, for a stream's first message, the client's
`NodeInfo`. A malformed or too large request raises `StreamRefused`: all input that passes this module is bounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.json_format import MessageToDict, SerializeToJsonError
from google.protobuf.message import DecodeError

from weft.xds.on_demand import CALLED
from weft.xds.response import Dialect
from weft.xds.types import CLUSTER, is_held

# Enough for a request that lists 30,000 services with their versions, three times what Istio's largest users have.
REQUEST_BYTES = 16 << 20
NAMES = 100_000
# The most names on one stream that held calls wait for. They come from the addresses that an application calls, which
# can be any. This is enough for all addresses that are kept for a group (`mesh/calls.py`), each with two names; a group
# with more addresses gets every service instead.
HELD = 4 * CALLED
NAME_LENGTH = 4_096
METADATA_BYTES = 64 * 1024  # an Istio proxy sends about 4 KB


class StreamRefused(Exception):
    """The client has violated the protocol or a limit, or is not authorized. Its stream ends with this reason; other
    streams are not affected."""


class Locality(msgspec.Struct, frozen=True):
    region: str = ""
    zone: str = ""
    sub_zone: str = ""

    def __str__(self) -> str:
        """REGION/ZONE/SUBZONE, as Istio formats a locality."""
        return f"{self.region}/{self.zone}/{self.sub_zone}".rstrip("/")


class NodeInfo(msgspec.Struct, frozen=True):
    id: str
    cluster: str = ""
    metadata: dict[str, Any] = {}
    locality: Locality = Locality()
    user_agent: str = ""


class XdsRequest(msgspec.Struct, frozen=True):
    type_url: str
    nonce: str = ""
    error: str | None = None  # if set, this is a NACK of the response with this nonce
    names: tuple[str, ...] = ()  # state-of-the-world: all subscribed names; delta: added ones
    unsubscribe: tuple[str, ...] = ()
    versions: Mapping[str, str] = {}  # name → version that the client has from an earlier stream


def parse(dialect: Dialect, payload: bytes) -> tuple[XdsRequest, NodeInfo | None]:
    delta = dialect is Dialect.DELTA
    message = discovery_pb2.DeltaDiscoveryRequest() if delta else discovery_pb2.DiscoveryRequest()
    try:
        message.ParseFromString(payload)
    except DecodeError as error:
        raise StreamRefused(f"not a {message.DESCRIPTOR.name}: {error}") from error
    if not message.type_url:
        raise StreamRefused("a request on an aggregated stream needs a type_url")
    request = XdsRequest(
        type_url=_short(message.type_url),
        nonce=_short(message.response_nonce),
        error=_error(message),
        names=_names(_bounded(message.resource_names_subscribe) if delta else message.resource_names),
        unsubscribe=_names(message.resource_names_unsubscribe) if delta else (),
        versions=_versions(message.initial_resource_versions) if delta else {},
    )
    return request, _node(message.node) if message.HasField("node") else None


def _error(message: Any) -> str | None:
    if not message.HasField("error_detail"):
        return None
    words = message.error_detail.message[:NAME_LENGTH].split()  # made one line, because it goes to logs and tables
    return " ".join(words) or f"code {message.error_detail.code}, no message"


def _bounded(names: Iterable[str]) -> list[str]:
    """Return the names without those above the limit HELD for names that held calls wait for. A client that reconnects
    requests again every name that its calls have ever waited for. The names above the limit are ignored; they do not
    end the stream, because the client needs the other names on it."""
    every = list(names)
    waiting = [name for name in every if is_held(CLUSTER, name)]
    if len(waiting) <= HELD:
        return every
    return [*waiting[:HELD], *(name for name in every if not is_held(CLUSTER, name))]


def _names(names: Iterable[str]) -> tuple[str, ...]:
    every = tuple(names)
    if len(every) > NAMES:
        raise StreamRefused(f"{len(every)} names in one request; the limit is {NAMES}")
    for name in every:
        _short(name)
    return every


def _versions(versions: Mapping[str, str]) -> dict[str, str]:
    _names(versions)
    return dict(versions)


def _short(name: str) -> str:
    if len(name) > NAME_LENGTH:
        raise StreamRefused(f"a name of {len(name)} characters, {name[:40]}…; the limit is {NAME_LENGTH}")
    return name


def _node(node: Any) -> NodeInfo:
    version = node.user_agent_version
    if node.HasField("user_agent_build_version"):
        number = node.user_agent_build_version.version
        version = f"{number.major_number}.{number.minor_number}.{number.patch}"
    size = node.metadata.ByteSize()
    if size > METADATA_BYTES:
        raise StreamRefused(f"{size} bytes of node metadata; the limit is {METADATA_BYTES}")
    try:
        metadata = MessageToDict(node.metadata)
    except (ValueError, SerializeToJsonError) as error:  # a number may be infinite
        raise StreamRefused(f"node metadata cannot be represented as JSON: {error}") from error
    return NodeInfo(
        id=_short(node.id),
        cluster=_short(node.cluster),
        metadata=metadata,
        locality=Locality(node.locality.region, node.locality.zone, node.locality.sub_zone),
        user_agent=f"{node.user_agent_name} {version}".strip(),
    )
