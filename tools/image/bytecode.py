"""Python's bytecode, made while the image is built: a container's root is read-only, and every pod waits for `weft`.

The image's own interpreter makes it, run in place by its own loader, so neither root nor a matching Python is needed.
Files of the kind "unchecked hash" are never compared with their source: no time stamp, and one `stat` less each.
"""

from __future__ import annotations

from pathlib import Path

from tools.image.error import run

# What protoc wrote: nobody reads it, and there are hundreds.
_GENERATED = "_pb2.py"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"


def compile_tree(tree: Path, debian: Path) -> None:
    """Every module below `tree`, with the Python of the tree `debian`."""
    libraries = debian / _LIBRARIES
    loader: list[str | Path] = [libraries / "ld-linux-x86-64.so.2", "--library-path", libraries]
    # -S, -P: nothing from elsewhere; the seed: sets must be written in the same order each time.
    python = [*loader, debian / "usr/bin/python3.11", "-S", "-P"]
    environment = {"PYTHONHOME": str(debian / "usr"), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    run(
        # Stripped and prefixed: a traceback names the place in the image, not in this machine's cache.
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
        hint="a module is not of this Python's version",
        environment=environment,
    )
    for source in sorted(tree.rglob("*.py")):
        if source.name.endswith(_GENERATED) or source.stat().st_size == 0:
            _replace(source)


def _replace(source: Path) -> None:
    """Bytecode in its source's place is found, too. It halves the files that a node has to unpack."""
    beside = source.parent / "__pycache__"
    (beside / f"{source.stem}.cpython-311.pyc").rename(source.with_suffix(".pyc"))
    source.unlink()
    if not any(beside.iterdir()):
        beside.rmdir()
