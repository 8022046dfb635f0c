"""Compiles Python modules to bytecode while the image is built. A container's root filesystem is read-only, so
bytecode could not be cached at run time, and every pod waits for the start of `weft`.

The image's own Python interpreter compiles the modules. It is started with its own dynamic loader from the unpacked
tree, so neither root nor a Python of the same version is needed. The bytecode files are "unchecked hash" files:
Python does not compare them with their source, so they contain no time stamp, and each import saves one `stat` call.
"""

from __future__ import annotations

from pathlib import Path

from tools.image.error import run

# Modules that protoc generated. There are hundreds of them, and their source is not needed.
_GENERATED = "_pb2.py"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"


def compile_tree(tree: Path, debian: Path) -> None:
    """Compile every module below `tree` with the Python interpreter in the tree `debian`."""
    libraries = debian / _LIBRARIES
    loader: list[str | Path] = [libraries / "ld-linux-x86-64.so.2", "--library-path", libraries]
    # -S and -P: import nothing from outside the tree. The fixed hash seed keeps the order of sets in the bytecode the
    # same in every build.
    python = [*loader, debian / "usr/bin/python3.11", "-S", "-P"]
    environment = {"PYTHONHOME": str(debian / "usr"), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    run(
        # -s and -p: tracebacks contain the path in the image, not the path in this machine's cache.
        [
            *python,
            "-m",
            "compileall",
            "-qq",
            "-f",
            "--invalidation-mode",
            "unchecked-hash",
            "-s",
            tree,
            "-p",
            "/",
            tree,
        ],
        hint="a module has syntax that Python 3.11 does not accept",
        environment=environment,
    )
    for source in sorted(tree.rglob("*.py")):
        if source.name.endswith(_GENERATED) or source.stat().st_size == 0:
            _replace(source)


def _replace(source: Path) -> None:
    """Replace the source file by its bytecode file. Python also imports bytecode that is in the place of the source.
    This halves the number of files that a node has to unpack."""
    beside = source.parent / "__pycache__"
    (beside / f"{source.stem}.cpython-311.pyc").rename(source.with_suffix(".pyc"))
    source.unlink()
    if not any(beside.iterdir()):
        beside.rmdir()
