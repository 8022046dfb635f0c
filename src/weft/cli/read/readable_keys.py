"""Warns about files with private keys that the apps of a mesh can read: files of the mesh with a Secret in them, and
key files that an object names. An app runs as a user of its own, so it can read a file that other users may read, if it
can reach the file: because all directories above the file are open to other users, or because a Workload declares the
file (`weft/local/pod_files.py`)."""

from __future__ import annotations

import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.model.proxy import PROXY_UID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weft.api.document import Document
    from weft.api.document import Path as FieldPath
    from weft.base.problem import Problem

_OTHERS_READ, _OTHERS_ENTER = stat.S_IROTH, stat.S_IXOTH


def problems_of(documents: Sequence[Document]) -> Iterator[Problem]:
    """Yield a warning for each readable file with a private key."""
    from weft.base.problem import Problem, Severity

    declared = list(_declared(documents))
    for document, path, file, for_proxies in _key_files(documents):
        readers = _readers(file, declared)
        if readers:
            what = f"{readers} can read {file}, which contains a private key"
            owner = f"chown {PROXY_UID} {shlex.quote(str(file))} && " if for_proxies else ""
            mode = "400" if for_proxies else "600"
            hint = f"{owner}chmod {mode} {shlex.quote(str(file))}"
            yield Problem(document.where(path), what, hint, Severity.WARNING, "WFT0823")


def _declared(documents: Iterable[Document]) -> Iterator[tuple[str, Path]]:
    """Yield (name, path) for each path that a Workload declares visible to its app (`mounts`). The name is that of the
    Workload, for messages."""
    from weft.api.parse import parse
    from weft.model.workload import Workload

    for document in documents:
        for value in parse(document).values if document.key.kind == "Workload" else ():
            if isinstance(value, Workload):
                yield from ((str(document.key), Path(mount)) for mount in value.mounts)


def _key_files(documents: Iterable[Document]) -> Iterator[tuple[Document, FieldPath, Path, bool]]:
    """Yield each object with a private key, the field, the file that contains the key, and whether proxies read this
    file themselves."""
    for document in documents:
        if document.key.kind == "Secret" and _has_key(document):
            yield document, ("data",), Path(document.directory, Path(document.file).name), False
        elif document.key.kind in ("Gateway", "DestinationRule"):
            for path, file in _named(document.body.get("spec"), ("spec",)):
                yield document, path, Path(file), True


def _has_key(document: Document) -> bool:
    from weft.api.parse import parse
    from weft.model.credential import Credential

    return any(isinstance(value, Credential) and value.private_key for value in parse(document).values)


def _named(value: Any, path: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            if name == "privateKey" and isinstance(item, str) and item.startswith("/"):
                yield (*path, name), item
            else:
                yield from _named(item, (*path, str(name)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _named(item, (*path, index))


def _readers(file: Path, declared: Iterable[tuple[str, Path]]) -> str:
    """Return, as words for a message, which apps can read `file`: every app, or the app of one Workload; "" if none
    can. `declared`: the name of each Workload, with each path that it declares visible to its app."""
    try:
        real = file.resolve()
        if not real.is_file() or not real.stat().st_mode & _OTHERS_READ:
            return ""
        if all(parent.stat().st_mode & _OTHERS_ENTER for parent in real.parents):
            return "every user of this machine, and every app of the mesh,"
        return next((f"the app of {name}" for name, mount in declared if _shows(mount.resolve(), real)), "")
    except (OSError, ValueError):
        return ""


def _shows(mount: Path, file: Path) -> bool:
    """Return whether an app that sees the path `mount` can reach `file` there: `mount` is the file itself, or a
    directory above it, and all directories in between are open to others."""
    if mount == file:
        return True
    between = [parent for parent in file.parents if mount in parent.parents]
    return mount in file.parents and all(parent.stat().st_mode & _OTHERS_ENTER for parent in between)
