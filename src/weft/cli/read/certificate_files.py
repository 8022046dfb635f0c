"""Warns about files that a DestinationRule's `tls` names and that do not exist or cannot be read. On one machine the
proxies see the same files as the user."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.api.document import Document
    from weft.api.document import Path as FieldPath
    from weft.base.problem import Problem

_FILES = ("clientCertificate", "privateKey", "caCertificates", "caCrl")


def problems_of(document: Document) -> Iterator[Problem]:
    """Yield a warning for each certificate or key file of `document` that is missing or unreadable. Not an error: the
    file may be created later, and Envoy retries."""
    from weft.base.problem import Problem, Severity

    for path, file in _named(document.body.get("spec"), ("spec",)):
        what = _against(Path(file))
        if what:
            hint = f"calls that use this DestinationRule fail until the file is readable: ls -l {shlex.quote(file)}"
            yield Problem(document.where(path), f"`{path[-1]}`: {what}", hint, Severity.WARNING, "WFT0214")


def _named(value: Any, path: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    """Yield the path of the field and the file for every absolute file path below a `tls` field. Relative file paths
    are left out, because the parser rejects them."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name in _FILES and path[-1] == "tls" and isinstance(item, str) and item.startswith("/"):
                yield (*path, name), item
            else:
                yield from _named(item, (*path, str(name)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _named(item, (*path, index))


def _against(file: Path) -> str:
    try:
        if not file.exists():
            return f"{file} does not exist"
        if not file.is_file():
            return f"{file} is not a file"
        return "" if os.access(file, os.R_OK) else f"you have no permission to read {file}"
    except (OSError, ValueError) as error:
        return f"{file} cannot be checked: {error}"
