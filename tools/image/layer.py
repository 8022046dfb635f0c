"""One layer: a tree of files as a tar, compressed, with the two digests by which the world knows it.

Names sorted, root the owner of all, one time for everything, modes reduced to "may be run or not": two builds of the
same tree are the same bytes. Layers are kept by key with their trees, the few that were used last.
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

# hatchling's, which it gives to all files in a wheel: 2 February 2020.
TIME = 1580601600
# More than this many of one name are yesterday's.
_KEPT = 4


@dataclasses.dataclass(frozen=True)
class Layer:
    name: str
    directory: Path
    digest: str  # of the compressed bytes, as in the manifest
    diff_id: str  # of the bytes before, as in the configuration
    size: int

    @property
    def tree(self) -> Path:
        return self.directory / "tree"

    @property
    def blob(self) -> Path:
        return self.directory / "layer.tar.gz"

    def extract(self, directory: Path) -> None:
        """The files as they are in the image: the tree's own may have other modes, by this user's umask."""
        with tarfile.open(self.blob) as archive:
            extract(archive, directory)


def cached(cache: Path, name: str, key: str, fill: Callable[[Path], None]) -> Layer:
    """The layer that was made before with this key, or a new one; `fill` puts the files into the tree."""
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
    # Newer Pythons refuse absolute links unless told whom to trust, older ones have no word for it.
    archive.extraction_filter = lambda member, _: member
    archive.extractall(directory)


def touch(directory: Path, name: str) -> None:
    """It was used just now. Of all that are called NAME-KEY beside it, those that were not used for longest go."""
    os.utime(directory)
    alike = [path for path in directory.parent.glob(f"{name}-*") if path.is_dir() and path.suffix != ".partial"]
    for old in sorted(alike, key=lambda path: path.stat().st_mtime, reverse=True)[_KEPT:]:
        shutil.rmtree(old)


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """A file that exists only as bytes."""
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
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        member = _member(name, mode=0o777, kind=tarfile.SYMTYPE)
        member.linkname = str(path.readlink())
        archive.addfile(member)
    elif stat.S_ISDIR(found.st_mode):
        mode = 0o1777 if found.st_mode & stat.S_ISVTX else 0o755
        archive.addfile(_member(name, mode=mode, kind=tarfile.DIRTYPE))
    else:
        add_file(archive, name, path, mode=0o755 if found.st_mode & 0o100 and _is_program(path) else 0o644)


def _is_program(path: Path) -> bool:
    """Packages mark many a file as one that is not: modules, licences, lists."""
    with path.open("rb") as file:
        return path.suffix != ".py" and file.read(4).startswith((b"\x7fELF", b"#!"))


def _member(name: str, *, mode: int, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.mtime = kind, mode, TIME
    return member


class _Hashing(io.RawIOBase):
    """Passes on what is written, and knows its digest."""

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
