"""The result of translation: a named Envoy resource, ready to send.

The message is serialized once, here; all later steps use only the bytes. The version is the digest of the content, so
equal content has the same version in every process, without a counter.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import msgspec
from google.protobuf.message import Message

from weft.model.names import ObjectKey

_LARGE = 4096  # bytes; the parts of smaller bodies are joined


class Built(msgspec.Struct, frozen=True, eq=False, weakref=True):
    type_url: str
    name: str
    version: str
    parts: tuple[bytes, ...]  # the pieces of the body; more than one only if the body is large
    sources: tuple[ObjectKey, ...] = ()  # the objects that the resource is made from, the deciding one first

    @property
    def body(self) -> bytes:
        """The serialized resource, not wrapped in an Any. The parts are joined at each access and the result is not
        kept: the same parts are used by the resources of many namespaces, and a joined copy for each of them would need
        much memory."""
        return b"".join(self.parts)


def build(name: str, message: Message, sources: tuple[ObjectKey, ...] = ()) -> Built:
    return from_bytes(message.DESCRIPTOR.full_name, name, message.SerializeToString(deterministic=True), sources)


def from_parts(message_name: str, name: str, parts: Iterable[bytes], sources: tuple[ObjectKey, ...] = ()) -> Built:
    """Build the resource `name` of the type `message_name` (a protobuf name, without `type.googleapis.com/`) from
    `parts`, serialized messages of that type. In protobuf, the concatenated bytes of several messages are one message
    with the fields of all of them. The parts of a large resource (4 KiB or more) are kept separate; those of a smaller
    one are joined here. `sources`: the objects that the resource is made from, the deciding one first."""
    parts = tuple(parts)
    if sum(map(len, parts)) < _LARGE:
        parts = (b"".join(parts),)
    digest = blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
    return Built(f"type.googleapis.com/{message_name}", name, digest.hexdigest(), parts, sources)


def from_bytes(message_name: str, name: str, body: bytes, sources: tuple[ObjectKey, ...] = ()) -> Built:
    return from_parts(message_name, name, (body,), sources)
