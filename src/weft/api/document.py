"""An object before it is parsed: plain data, and the line of each field. Both sources, files and Kubernetes, produce
Changes of Documents; `api/parse.py` turns a document into model values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from weft.base.problem import Where
from weft.model.names import ObjectKey

Path = tuple[str | int, ...]  # ("spec", "http", 0, "route", 1, "weight")

_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


class Document(msgspec.Struct, frozen=True):
    key: ObjectKey
    api_version: str
    body: Mapping[str, Any]
    file: str = ""
    directory: str = ""  # absolute; relative paths in it start here
    line: int = 0  # of the object itself
    lines: Mapping[Path, int] = {}  # of its fields, if the source has lines
    usable: bool = True  # else only the key is known, and the content cannot be used

    @property
    def is_protobuf(self) -> bool:
        """Whether its fields are protobuf's JSON: Istio's objects, and the mesh's settings in their ConfigMap."""
        return ".istio.io/" in self.api_version or self.key.kind == "ConfigMap"

    def where(self, path: Path = ()) -> Where:
        """The nearest known location of a field: its own line, or that of the field that contains it."""
        line = next((self.lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.lines), self.line)
        return Where(file=self.file, line=line, object=str(self.key), field=dotted(path))


class Change(msgspec.Struct, frozen=True):
    """An object is now this document, or (None) was deleted."""

    key: ObjectKey
    document: Document | None


def dotted(path: Path) -> str:
    """`spec.http[0].route[1].weight`"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def undotted(text: str) -> Path:
    """The inverse of `dotted`. A name with dots is split, and then only the parts before it are right."""
    # Only numbers in brackets are positions: in `portLevelMtls.8080` the digits are a name.
    return tuple(int(position) if position else name for position, name in _PART.findall(text))
