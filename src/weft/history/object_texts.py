"""The content of the mesh's objects, as they were written, in the format of Istio's `/debug/configz`. Each object has a
digest of its content, and all objects together have one: two moments with the same digest have the same content.

Rule: secrets are not stored: the command, arguments and environment of a Workload, the data of a Secret, private keys
in a JWKS, and kubectl's copy of an object in its annotations.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from weft.api.document import Document
from weft.api.kinds import written_kind
from weft.api.secret import without_key
from weft.history.journal import Said, SaidEdit
from weft.model.credential import HIDDEN
from weft.model.names import ObjectKey

DIGITS = 12  # digits of a digest that are shown, as many as git shows in a large repository

_OF_METADATA = ("labels", "annotations")
_COPY = "kubectl.kubernetes.io/last-applied-configuration"
_PUBLIC = frozenset({"tls.crt", "cert", "ca.crt", "cacert", "ca.crl", "crl"})  # keys of a Secret that are public
_OF_PROCESSES = ("command", "args", "env", "readiness")  # fields of a Workload that may contain secrets
_BITS = 1 << 128
# Private parts of a JSON Web Key, in JSON that is a string in JSON: with them, a reader could sign tokens.
_PRIVATE = re.compile(rb"(\\\"(?:k|d|p|q|dp|dq|qi)\\\"\s*:\s*\\\")[A-Za-z0-9_=-]+")
_NO_KEY = b"AAAA"


class Content(msgspec.Struct, frozen=True):
    """The content of one object. `said` is the object as JSON, without the fields that its source and the API server
    add. `number` is the object's digest."""

    said: bytes
    number: int  # digest of the content
    file: str = ""
    line: int = 0

    @property
    def kept(self) -> Said:
        return Said(self.said.decode(), self.file, self.line)


class Contents:
    """The content of all objects in force. `digest` is updated incrementally: the cost of a change depends on the
    changed object only."""

    def __init__(self) -> None:
        self._contents: dict[ObjectKey, Content] = {}
        self._sum = 0
        self._before: dict[ObjectKey, Content | None] = {}  # content before the first change since `changes` was called

    def put(self, document: Document) -> None:
        self.drop(document.key)
        storable, whole = content_of(document)
        # The digest includes the key: otherwise swapping the content of two objects would not change the sum.
        number = int.from_bytes(hashlib.sha256(f"{document.key}\n".encode() + whole).digest()[:16])
        self._contents[document.key] = Content(storable, number, document.file, document.line)
        self._sum = (self._sum + number) % _BITS

    def drop(self, key: ObjectKey) -> None:
        content = self._contents.pop(key, None)
        self._before.setdefault(key, content)
        if content is not None:
            self._sum = (self._sum - content.number) % _BITS

    def file(self, key: ObjectKey) -> str:
        """Return the file that an object was read from; empty if it is not from a file."""
        content = self._contents.get(key)
        return content.file if content is not None else ""

    def digest(self) -> str:
        """Return the digest of all objects, independent of their order."""
        return hashlib.sha256(self._sum.to_bytes(16)).hexdigest()[:DIGITS]

    def all_said(self) -> dict[ObjectKey, Said]:
        return {key: content.kept for key, content in self._contents.items()}

    def changes(self) -> tuple[SaidEdit, ...]:
        """Return an edit for each object whose content has changed since the last call."""
        touched = [(key, before, self._contents.get(key)) for key, before in self._before.items()]
        self._before.clear()
        return tuple(
            SaidEdit(key, before.kept if before else None, after.kept if after else None)
            for key, before, after in touched
            if (before.said if before else None) != (after.said if after else None)
        )

    def forget_changes(self) -> None:
        self._before.clear()

    def __iter__(self) -> Iterator[tuple[ObjectKey, dict[str, Any]]]:
        for key, content in self._contents.items():
            yield key, msgspec.json.decode(content.said)


def document_of(key: ObjectKey, kept: Said) -> Document | None:
    """Return the document of the object `key` from its stored content `kept`, without the parts that are not stored;
    None if the content is not an object."""
    try:
        body = msgspec.json.decode(kept.said, type=dict[str, Any])
    except msgspec.DecodeError:
        return None
    spec = body.get("spec")
    if key.kind == "Workload" and isinstance(spec, dict):
        spec["command"] = ["-"]  # a Workload must have a command; this one is never run
    return Document(key, str(body.get("apiVersion", "")), body, kept.file, line=kept.line)


def content_of(document: Document) -> tuple[bytes, bytes]:
    """Return two encodings of the document's object: the content that may be stored, without secrets, and the whole
    content, of which only a digest may be stored. Never raises: content that cannot be encoded is reduced to the
    kind and metadata of the object."""
    key = document.key
    body = document.body
    given_metadata = body.get("metadata")
    metadata: dict[str, Any] = {"name": key.name, **({"namespace": key.namespace} if key.namespace else {})}
    for field in _OF_METADATA:
        pairs = given_metadata.get(field) if isinstance(given_metadata, Mapping) else None
        if isinstance(pairs, Mapping) and pairs:
            metadata[field] = {name: value for name, value in pairs.items() if name != _COPY}
    named = {"apiVersion": document.api_version, "kind": written_kind(key.kind), "metadata": metadata}
    rest = {name: value for name, value in body.items() if name not in ("apiVersion", "kind", "metadata", "status")}
    try:
        storable = whole = _encoder.encode({**named, **rest})
        if key.kind == "Workload" and isinstance(rest.get("spec"), Mapping):
            rest["spec"] = {name: value for name, value in rest["spec"].items() if name not in _OF_PROCESSES}
            storable = _encoder.encode({**named, **rest})
        elif key.kind == "Secret":
            storable = _encoder.encode({**named, **_without_secrets(rest)})
    except (TypeError, ValueError, RecursionError):
        storable = whole = _encoder.encode(named)
    return _PRIVATE.sub(rb"\1" + _NO_KEY, storable), whole


def _without_secrets(rest: Mapping[str, Any]) -> dict[str, Any]:
    """Return `rest`, the fields of a Secret, with all data replaced except public certificates. These are kept,
    because `weft explain` needs them for past gateways."""
    fields: dict[str, Any] = {}
    for field, decode, encode in (("data", _decoded, b64encode), ("stringData", str.encode, bytes)):
        for name, value in rest[field].items() if isinstance(rest.get(field), Mapping) else ():
            shown_value = without_key(decode(value)) if name in _PUBLIC and isinstance(value, str) else HIDDEN
            fields.setdefault(field, {})[str(name)] = encode(shown_value).decode()
    return {**({"type": rest["type"]} if isinstance(rest.get("type"), str) else {}), **fields}


def _decoded(value: str) -> bytes:
    try:
        return b64decode("".join(value.split()), validate=True)
    except ValueError:
        return HIDDEN  # the value is not base64


_encoder = msgspec.json.Encoder(order="deterministic", enc_hook=lambda value: _plain(value))


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)
