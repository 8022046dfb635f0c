"""An object before it is parsed: plain data, with the line of each field. Files and Kubernetes are the two sources of
documents; both produce `Change` values. `api/parse.py` turns a document into model values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from weft.base.problem import Where
from weft.model.names import ObjectKey

Path = tuple[str | int, ...]  # such as ("spec", "http", 0, "route", 1, "weight")

_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


class Document(msgspec.Struct, frozen=True):
    key: ObjectKey
    api_version: str
    body: Mapping[str, Any]
    file: str = ""
    directory: str = ""  # the absolute directory that relative paths in the document refer to
    line: int = 0  # the line of the object itself
    lines: Mapping[Path, int] = {}  # the line of each field; empty if the source has no lines
    usable: bool = True  # False: only the key is known, and the content cannot be used

    @property
    def is_protobuf(self) -> bool:
        """Whether the document's fields are protobuf JSON: Istio's objects, and the MeshConfig in its ConfigMap."""
        return ".istio.io/" in self.api_version or self.key.kind == "ConfigMap"

    def where(self, path: Path = ()) -> Where:
        """Return the location of a field: its own line, or else the line of the nearest field that contains it."""
        line = next((self.lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.lines), self.line)
        return Where(file=self.file, line=line, object=str(self.key), field=dotted(path))


class Change(msgspec.Struct, frozen=True):
    """A changed object: `document` is its new content, or None if it was deleted."""

    key: ObjectKey
    document: Document | None


def dotted(path: Path) -> str:
    """Return a path as text, such as `spec.http[0].route[1].weight`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def undotted(text: str) -> Path:
    """Return the path of a text; the inverse of `dotted`. A field name that contains dots is split, so the result is
    right only up to that field."""
    # Only numbers in brackets are positions: in `portLevelMtls.8080` the digits are a name.
    return tuple(int(position) if position else name for position, name in _PART.findall(text))
