"""An object as somebody wrote it, before anyone has read it: plain data, and for each field the line it stands on.
Both sources, files and Kubernetes, hand in Changes of Documents; `api/parse.py` turns a document into model values."""

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
    directory: str = ""  # absolute: where relative paths in it start
    line: int = 0  # of the object itself
    lines: Mapping[Path, int] = {}  # of its fields, where the source has lines
    usable: bool = True  # else it is told only which object it is, and nothing of what it says

    @property
    def is_protobuf(self) -> bool:
        """Whether its fields are protobuf's JSON: Istio's objects, and the mesh's settings in their ConfigMap."""
        return ".istio.io/" in self.api_version or self.key.kind == "ConfigMap"

    def where(self, path: Path = ()) -> Where:
        """The nearest known place of a field: its own line, or that of what holds it."""
        line = next((self.lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.lines), self.line)
        return Where(file=self.file, line=line, object=str(self.key), field=dotted(path))


class Change(msgspec.Struct, frozen=True):
    """An object is now this document, or (None) is really gone."""

    key: ObjectKey
    document: Document | None


def dotted(path: Path) -> str:
    """`spec.http[0].route[1].weight`"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def undotted(text: str) -> Path:
    """What `dotted` was made from. Names that have dots in them come apart: then the first of its parts are right."""
    # Only what stands in brackets is a position: `portLevelMtls.8080` is a name that has digits.
    return tuple(int(position) if position else name for position, name in _PART.findall(text))
