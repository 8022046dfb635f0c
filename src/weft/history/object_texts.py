"""What objects say, as they were written: documents come in, and leave as Istio's `/debug/configz` lists them. Each has
a digest of what it says, and so has all of it together: two moments with the same digest say the same.

Rule: nothing secret is kept: what a Workload's process is given, what a Secret holds, keys with which tokens could be
made, and the copy of an object that kubectl puts into its annotations.
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

DIGITS = 12  # of a digest, as people see it; git shows as many of a large repository

_OF_METADATA = ("labels", "annotations")
_COPY = "kubectl.kubernetes.io/last-applied-configuration"
_PUBLIC = frozenset({"tls.crt", "cert", "ca.crt", "cacert", "ca.crl", "crl"})  # of a Secret: what anybody may see
_OF_PROCESSES = ("command", "args", "env", "readiness")  # of a Workload
_BITS = 1 << 128
# Of a JSON Web Key, in JSON within JSON, what only its issuer should have: whoever has it can make tokens.
_PRIVATE = re.compile(rb"(\\\"(?:k|d|p|q|dp|dq|qi)\\\"\s*:\s*\\\")[A-Za-z0-9_=-]+")
_NO_KEY = b"AAAA"


class Content(msgspec.Struct, frozen=True):
    """`said`: an object as JSON, without what its place and its time have added."""

    said: bytes
    number: int  # its digest
    file: str = ""
    line: int = 0

    @property
    def kept(self) -> Said:
        return Said(self.said.decode(), self.file, self.line)


class Contents:
    """`digest` changes with each object, by as much work as that object is."""

    def __init__(self) -> None:
        self._contents: dict[ObjectKey, Content] = {}
        self._sum = 0
        self._before: dict[ObjectKey, Content | None] = {}  # of what has changed since somebody took note

    def put(self, document: Document) -> None:
        self.drop(document.key)
        said, whole = content_of(document)
        # With the key, or two objects that change places would say the same.
        number = int.from_bytes(hashlib.sha256(f"{document.key}\n".encode() + whole).digest()[:16])
        self._contents[document.key] = Content(said, number, document.file, document.line)
        self._sum = (self._sum + number) % _BITS

    def drop(self, key: ObjectKey) -> None:
        gone = self._contents.pop(key, None)
        self._before.setdefault(key, gone)
        if gone is not None:
            self._sum = (self._sum - gone.number) % _BITS

    def file(self, key: ObjectKey) -> str:
        """The file that an object came from; empty if it came from none."""
        content = self._contents.get(key)
        return content.file if content is not None else ""

    def digest(self) -> str:
        """Of all of them, in whatever order they came."""
        return hashlib.sha256(self._sum.to_bytes(16)).hexdigest()[:DIGITS]

    def all_said(self) -> dict[ObjectKey, Said]:
        return {key: content.kept for key, content in self._contents.items()}

    def changes(self) -> tuple[SaidEdit, ...]:
        """Of which objects something else is said than when this was asked last."""
        found = [(key, before, self._contents.get(key)) for key, before in self._before.items()]
        self._before.clear()
        return tuple(
            SaidEdit(key, before.kept if before else None, after.kept if after else None)
            for key, before, after in found
            if (before.said if before else None) != (after.said if after else None)
        )

    def forget_changes(self) -> None:
        self._before.clear()

    def __iter__(self) -> Iterator[tuple[ObjectKey, dict[str, Any]]]:
        for key, content in self._contents.items():
            yield key, msgspec.json.decode(content.said)


def document_of(key: ObjectKey, kept: Said) -> Document | None:
    """The document that said this, as far as it is kept; None if it is none."""
    try:
        body = msgspec.json.decode(kept.said, type=dict[str, Any])
    except msgspec.DecodeError:
        return None
    spec = body.get("spec")
    if key.kind == "Workload" and isinstance(spec, dict):
        spec["command"] = ["-"]  # it has one, and nobody will run it
    return Document(key, str(body.get("apiVersion", "")), body, kept.file, line=kept.line)


def content_of(document: Document) -> tuple[bytes, bytes]:
    """What may be kept of it, and all that it says, of which only a digest may be. Never raises: of what cannot be
    written, only the names are told."""
    key = document.key
    body = document.body
    given = body.get("metadata")
    metadata: dict[str, Any] = {"name": key.name, **({"namespace": key.namespace} if key.namespace else {})}
    for field in _OF_METADATA:
        pairs = given.get(field) if isinstance(given, Mapping) else None
        if isinstance(pairs, Mapping) and pairs:
            metadata[field] = {name: value for name, value in pairs.items() if name != _COPY}
    named = {"apiVersion": document.api_version, "kind": written_kind(key.kind), "metadata": metadata}
    rest = {name: value for name, value in body.items() if name not in ("apiVersion", "kind", "metadata", "status")}
    try:
        said = whole = _encoder.encode({**named, **rest})
        if key.kind == "Workload" and isinstance(rest.get("spec"), Mapping):
            rest["spec"] = {name: value for name, value in rest["spec"].items() if name not in _OF_PROCESSES}
            said = _encoder.encode({**named, **rest})
        elif key.kind == "Secret":
            said = _encoder.encode({**named, **_without_secrets(rest)})
    except (TypeError, ValueError, RecursionError):
        said = whole = _encoder.encode(named)
    return _PRIVATE.sub(rb"\1" + _NO_KEY, said), whole


def _without_secrets(rest: Mapping[str, Any]) -> dict[str, Any]:
    """Of a Secret, which keys it has. What a gateway shows to everybody is kept, so that its past can be looked at."""
    held: dict[str, Any] = {}
    for field, read, written in (("data", _decoded, b64encode), ("stringData", str.encode, bytes)):
        for name, value in rest[field].items() if isinstance(rest.get(field), Mapping) else ():
            shown = without_key(read(value)) if name in _PUBLIC and isinstance(value, str) else HIDDEN
            held.setdefault(field, {})[str(name)] = written(shown).decode()
    return {**({"type": rest["type"]} if isinstance(rest.get("type"), str) else {}), **held}


def _decoded(value: str) -> bytes:
    try:
        return b64decode("".join(value.split()), validate=True)
    except ValueError:
        return HIDDEN  # nobody can read it


_encoder = msgspec.json.Encoder(order="deterministic", enc_hook=lambda value: _plain(value))


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)
