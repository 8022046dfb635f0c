"""Builds the image from this checkout: defines its layers, the inputs of each layer, and the output file.

Only one build at a time uses a cache. A second build waits for the first and then finds most layers in the cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.image import bytecode, debian, oci, packages
from tools.image.layer import Layer, cached

ROOT = Path(__file__).resolve().parent.parent.parent
OUTPUT = ROOT / "build" / "weft-image.tar"


def build(output: Path = OUTPUT, *, name: str = "", cache: Path | None = None) -> Path:
    """Write the image as a tar of an OCI layout and return its path. `name` is the full image name; the default is
    the name that `weft install` uses."""
    with _layers(cache or default_cache()) as layers:
        oci.write(output, layers, name=name or f"docker.io/library/weft:{version()}", version=version())
    return output


def trees(directory: Path, *, cache: Path | None = None) -> list[Path]:
    """Write each layer as a directory of files, lowest layer first, for tools that build layers themselves. Return
    the directories."""
    with _layers(cache or default_cache()) as layers:
        for layer in layers:
            layer.extract(directory / layer.name)
    return [directory / layer.name for layer in layers]


def version() -> str:
    value = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return str(value)


@contextmanager
def _layers(cache: Path) -> Iterator[list[Layer]]:
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock, tempfile.TemporaryDirectory() as temporary:
        fcntl.flock(lock, fcntl.LOCK_EX)
        debs = debian.fetch(cache / "debian")
        wheels = packages.fetch(ROOT, cache)
        weft = packages.build_weft(ROOT, Path(temporary))

        def lowest(tree: Path) -> None:
            debian.unpack(debs, tree)
            bytecode.compile_tree(tree, tree)

        def dependencies(tree: Path) -> None:
            packages.unpack(wheels, tree)
            packages.add_envoy(tree)
            bytecode.compile_tree(tree, base.tree)

        def own(tree: Path) -> None:
            packages.unpack([weft], tree)
            packages.add_weft(tree)
            bytecode.compile_tree(tree, base.tree)

        base = cached(cache, "debian", _key(debs), lowest)
        middle = cached(cache, "dependencies", _key(debs, wheels), dependencies)
        top = cached(cache, "weft", _key(debs, [weft]), own)
        yield [base, middle, top]


def _key(*inputs: list[Path]) -> str:
    """Return the cache key of a layer: a hash of its input files and of the source code of this package."""
    key = hashlib.sha256()
    for file in [*sorted(Path(__file__).parent.glob("*.py")), *(file for files in inputs for file in files)]:
        key.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return key.hexdigest()


def default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft" / "image"
