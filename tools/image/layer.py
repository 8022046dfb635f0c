"""Builds and caches one image layer: a tree of files as a compressed tar, with the digests of the compressed and of
the uncompressed tar.

Two builds of the same tree give the same bytes: names are sorted, all files belong to root and have the same time,
and modes only distinguish executable files from others. The cache has a layer and its tree under each key; only the
few most recently used ones of each name are kept.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import os
import shutil
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

# The time that hatchling gives to all files in a wheel: 2 February 2020.
TIME = 1580601600
# How many cached layers of one name are kept.
_KEPT = 4


@dataclasses.dataclass(frozen=True)
class Layer:
    name: str
    directory: Path
    digest: str  # of the compressed tar, as in the image's manifest
    diff_id: str  # digest of the uncompressed tar, as in the image's configuration
    size: int

    @property
    def tree(self) -> Path:
        return self.directory / "tree"

    @property
    def blob(self) -> Path:
        return self.directory / "layer.tar.gz"

    def extract(self, directory: Path) -> None:
        """Extract the layer's files with the modes that they have in the image. In `tree` the modes may differ,
        because of the user's umask."""
        with tarfile.open(self.blob) as archive:
            extract(archive, directory)


def cached(cache: Path, name: str, key: str, fill: Callable[[Path], None]) -> Layer:
    """Return the cached layer with this key, or build it. `fill` writes the files of a new layer into a tree."""
    directory = cache / f"{name}-{key[:16]}"
    if not directory.is_dir():
        partial = cache / f"{name}-{key[:16]}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        fill(partial / "tree")
        digest, diff_id, size = _pack(partial / "tree", partial / "layer.tar.gz")
        about = {"digest": digest, "diff_id": diff_id, "size": size}
        (partial / "about.json").write_text(json.dumps(about), encoding="utf-8")
        partial.rename(directory)
    touch(directory, name)
    return Layer(name, directory, **json.loads((directory / "about.json").read_text(encoding="utf-8")))


def extract(archive: tarfile.TarFile, directory: Path) -> None:
    # New versions of Python reject absolute links without an extraction filter; old versions have no named filters.
    archive.extraction_filter = lambda member, _: member
    archive.extractall(directory)


def touch(directory: Path, name: str) -> None:
    """Mark the cache directory as just used. Delete the least recently used directories with names NAME-KEY beside
    it, except the last four."""
    os.utime(directory)
    alike = [path for path in directory.parent.glob(f"{name}-*") if path.is_dir() and path.suffix != ".partial"]
    for old in sorted(alike, key=lambda path: path.stat().st_mtime, reverse=True)[_KEPT:]:
        shutil.rmtree(old)


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file with this content to the archive."""
    member = _member(name, mode=0o644)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def add_file(archive: tarfile.TarFile, name: str, file: Path, *, mode: int = 0o644) -> None:
    member = _member(name, mode=mode)
    member.size = file.stat().st_size
    with file.open("rb") as content:
        archive.addfile(member, content)


def _pack(tree: Path, to: Path) -> tuple[str, str, int]:
    with to.open("wb") as file:
        compressed = _Hashing(file)
        with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=compressed, mtime=0) as squeezed:
            plain = _Hashing(squeezed)
            with tarfile.open(fileobj=plain, mode="w|", format=tarfile.PAX_FORMAT) as archive:
                for path in sorted(tree.rglob("*")):
                    _add(archive, tree, path)
    return compressed.digest(), plain.digest(), to.stat().st_size


def _add(archive: tarfile.TarFile, tree: Path, path: Path) -> None:
    name = str(path.relative_to(tree))
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        member = _member(name, mode=0o777, kind=tarfile.SYMTYPE)
        member.linkname = str(path.readlink())
        archive.addfile(member)
    elif stat.S_ISDIR(status.st_mode):
        mode = 0o1777 if status.st_mode & stat.S_ISVTX else 0o755
        archive.addfile(_member(name, mode=mode, kind=tarfile.DIRTYPE))
    else:
        add_file(archive, name, path, mode=0o755 if status.st_mode & 0o100 and _is_program(path) else 0o644)


def _is_program(path: Path) -> bool:
    """Return whether the file is a program (ELF or `#!`). Packages also mark other files as executable: Python
    modules, licences, lists."""
    with path.open("rb") as file:
        return path.suffix != ".py" and file.read(4).startswith((b"\x7fELF", b"#!"))


def _member(name: str, *, mode: int, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.mtime = kind, mode, TIME
    return member


class _Hashing(io.RawIOBase):
    """A writer that passes all bytes on to another one and computes their SHA-256."""

    def __init__(self, to: io.IOBase | gzip.GzipFile) -> None:
        self._to = to
        self._hash = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._hash.update(data)
        self._to.write(data)
        return len(data)

    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"
