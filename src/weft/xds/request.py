"""Requests, from the wire to values. Bytes of a client come in; a `XdsRequest` and, on a stream's first message, the
client's `NodeInfo` leave. Whatever is malformed or too large is `StreamRefused`: past this room no input is unbounded.
"""

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

# A mesh of 30,000 services in one message with the versions of all of them; Istio's largest users have a third of that.
REQUEST_BYTES = 16 << 20
NAMES = 100_000
# Names that calls wait for, of one stream: what an application calls makes them up, and may be anything. There is room
# for all that are kept of a group (`mesh/calls.py`), each by two names: it is to be told of everything before that.
HELD = 4 * CALLED
NAME_LENGTH = 4_096
METADATA_BYTES = 64 * 1024  # a proxy of Istio tells some 4 KB of itself


class StreamRefused(Exception):
    """The client's fault: its stream ends with this reason and others do not notice."""


class Locality(msgspec.Struct, frozen=True):
    region: str = ""
    zone: str = ""
    sub_zone: str = ""

    def __str__(self) -> str:
        """REGION/ZONE/SUBZONE, as Istio writes it."""
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
    error: str | None = None  # set: the response with this nonce is refused
    names: tuple[str, ...] = ()  # state-of-the-world: everything wanted; delta: newly wanted
    unsubscribe: tuple[str, ...] = ()
    versions: Mapping[str, str] = {}  # what the client has from an earlier stream


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
    words = message.error_detail.message[:NAME_LENGTH].split()  # on one line: it goes to logs and tables
    return " ".join(words) or f"code {message.error_detail.code}, no message"


def _bounded(names: Iterable[str]) -> list[str]:
    """A client that comes back asks again for all that calls have waited for. For its other names' sake it is heard."""
    every = list(names)
    held = [name for name in every if is_held(CLUSTER, name)]
    if len(held) <= HELD:
        return every
    return [*held[:HELD], *(name for name in every if not is_held(CLUSTER, name))]


def _names(names: Iterable[str]) -> tuple[str, ...]:
    every = tuple(names)
    if len(every) > NAMES:
        raise StreamRefused(f"{len(every)} names in one request; {NAMES} are the most")
    for name in every:
        _short(name)
    return every


def _versions(versions: Mapping[str, str]) -> dict[str, str]:
    _names(versions)
    return dict(versions)


def _short(name: str) -> str:
    if len(name) > NAME_LENGTH:
        raise StreamRefused(f"a name of {len(name)} characters, {name[:40]}…; {NAME_LENGTH} are the most")
    return name


def _node(node: Any) -> NodeInfo:
    version = node.user_agent_version
    if node.HasField("user_agent_build_version"):
        number = node.user_agent_build_version.version
        version = f"{number.major_number}.{number.minor_number}.{number.patch}"
    size = node.metadata.ByteSize()
    if size > METADATA_BYTES:
        raise StreamRefused(f"{size} bytes of node metadata; {METADATA_BYTES} are the most")
    try:
        metadata = MessageToDict(node.metadata)
    except (ValueError, SerializeToJsonError) as error:  # an infinite number, say
        raise StreamRefused(f"node metadata that JSON cannot hold: {error}") from error
    return NodeInfo(
        id=_short(node.id),
        cluster=_short(node.cluster),
        metadata=metadata,
        locality=Locality(node.locality.region, node.locality.zone, node.locality.sub_zone),
        user_agent=f"{node.user_agent_name} {version}".strip(),
    )
