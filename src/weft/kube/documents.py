"""Converts objects of the API server into Documents for `api/`, and detects changes.

Fields that the server adds are left out, so that a status update is not a change.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from weft.api.document import Change, Document
from weft.kube.objects import Metadata, NamedObject, WrittenObject
from weft.kube.resource import ResourceKind
from weft.model.names import ObjectKey

log = logging.getLogger("weft.kube")

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"  # an annotation that repeats the whole object


class Documents:
    """Converts objects into changes, and keeps a digest of each object to skip objects that have not changed."""

    def __init__(self) -> None:
        self._seen: dict[ObjectKey, int] = {}

    def change(self, resource: ResourceKind, key: ObjectKey, written: WrittenObject | NamedObject) -> Change | None:
        """Return the change that sets the object `key` to the document of `written`; None if the document has not
        changed since the last call for this object."""
        digest = _digest(resource, written)
        if self._seen.get(key) == digest:
            return None
        self._seen[key] = digest
        return Change(key, document(resource, key, written))

    def gone(self, key: ObjectKey) -> Change:
        self._seen.pop(key, None)
        return Change(key, None)


def document(resource: ResourceKind, key: ObjectKey, written: WrittenObject | NamedObject) -> Document:
    body: dict[str, Any] = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": _metadata(written.metadata),
    }
    usable = True
    for name in ("spec", "data") if isinstance(written, WrittenObject) else ():
        raw: msgspec.Raw = getattr(written, name)
        if bytes(raw):
            try:
                body[name] = msgspec.json.decode(raw)
            except (msgspec.MsgspecError, RecursionError, ValueError) as error:  # nested too deeply
                log.warning("the `%s` of %s cannot be read: %s", name, key, error)
                usable = False
    return Document(key, resource.api_version, body, usable=usable)


def _metadata(metadata: Metadata) -> dict[str, Any]:
    kept: dict[str, Any] = {"name": metadata.name}
    if metadata.namespace:
        kept["namespace"] = metadata.namespace
    if metadata.labels:
        kept["labels"] = metadata.labels
    annotations = {name: value for name, value in (metadata.annotations or {}).items() if name != _LAST_APPLIED}
    if annotations:
        kept["annotations"] = annotations
    if metadata.creation_timestamp:
        kept["creationTimestamp"] = metadata.creation_timestamp
    return kept


def _digest(resource: ResourceKind, written: WrittenObject | NamedObject) -> int:
    parts = (bytes(written.spec), bytes(written.data)) if isinstance(written, WrittenObject) else ()
    return hash((resource.api_version, msgspec.json.encode(_metadata(written.metadata), order="sorted"), *parts))
