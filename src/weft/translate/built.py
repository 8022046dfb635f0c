"""What translation yields: a named Envoy resource, ready to send.

The message is serialized once, here; from then on only bytes travel. The version is the content's digest, so equal
content is equal everywhere, and nobody has to count.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import msgspec
from google.protobuf.message import Message

from weft.model.names import ObjectKey

_LARGE = 4096  # bytes; how a smaller body was joined is not worth knowing


class Built(msgspec.Struct, frozen=True, eq=False, weakref=True):
    type_url: str
    name: str
    body: bytes  # the serialized resource itself, not wrapped in an Any
    version: str
    sources: tuple[ObjectKey, ...] = ()  # the objects that made it, the deciding one first
    parts: tuple[bytes, ...] = ()  # what a large body was joined of, where much of it is also in others


def build(name: str, message: Message, sources: tuple[ObjectKey, ...] = ()) -> Built:
    return from_bytes(message.DESCRIPTOR.full_name, name, message.SerializeToString(deterministic=True), sources)


def from_parts(message_name: str, name: str, parts: Iterable[bytes], sources: tuple[ObjectKey, ...] = ()) -> Built:
    """By protobuf's rules, messages joined as bytes are one with all of their fields."""
    parts = tuple(parts)
    made = from_bytes(message_name, name, b"".join(parts), sources)
    return made if len(made.body) < _LARGE else msgspec.structs.replace(made, parts=parts)


def from_bytes(message_name: str, name: str, body: bytes, sources: tuple[ObjectKey, ...] = ()) -> Built:
    version = blake2b(body, digest_size=8).hexdigest()
    return Built(f"type.googleapis.com/{message_name}", name, body, version, sources)
