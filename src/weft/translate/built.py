"""The result of translation: a named Envoy resource, ready to send.

The message is serialized once, here; from then on only bytes travel. The version is the content's digest, so equal
content has the same version everywhere, without a counter.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import msgspec
from google.protobuf.message import Message

from weft.model.names import ObjectKey

_LARGE = 4096  # bytes; smaller bodies are not kept in parts


class Built(msgspec.Struct, frozen=True, eq=False, weakref=True):
    type_url: str
    name: str
    version: str
    parts: tuple[bytes, ...]  # the body, in pieces; several if it is large and shares pieces with other bodies
    sources: tuple[ObjectKey, ...] = ()  # the objects that made it, the deciding one first

    @property
    def body(self) -> bytes:
        """The serialized resource itself, not wrapped in an Any. A large one is joined at each access: a thousand hosts
        seen from a hundred namespaces are the same few parts, but would be a hundred bodies."""
        return b"".join(self.parts)


def build(name: str, message: Message, sources: tuple[ObjectKey, ...] = ()) -> Built:
    return from_bytes(message.DESCRIPTOR.full_name, name, message.SerializeToString(deterministic=True), sources)


def from_parts(message_name: str, name: str, parts: Iterable[bytes], sources: tuple[ObjectKey, ...] = ()) -> Built:
    """In protobuf, concatenated serialized messages are one message with the fields of all of them."""
    parts = tuple(parts)
    if sum(map(len, parts)) < _LARGE:
        parts = (b"".join(parts),)
    digest = blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
    return Built(f"type.googleapis.com/{message_name}", name, digest.hexdigest(), parts, sources)


def from_bytes(message_name: str, name: str, body: bytes, sources: tuple[ObjectKey, ...] = ()) -> Built:
    return from_parts(message_name, name, (body,), sources)
