"""Checks that the tests mirror the source tree: each module with at least one function has its own test file.

A module of plain values, without any function, needs no test.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def missing(root: Path) -> list[tuple[Path, Path]]:
    """Return the source files without a test file, each with the path of the test file that it should have."""
    gaps = []
    for source in sorted((root / "src" / "weft").rglob("*.py")):
        if source.name in ("__init__.py", "__main__.py") or not _does_something(source):
            continue
        package = source.relative_to(root / "src" / "weft").parent
        test = root / "tests" / package / f"test_{source.name}"
        if not test.exists():
            gaps.append((source.relative_to(root), test.relative_to(root)))
    return gaps


def _does_something(source: Path) -> bool:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(isinstance(node, functions) for node in ast.walk(ast.parse(source.read_text())))


def main() -> int:
    gaps = missing(ROOT)
    for source, test in gaps:
        print(f"{source}: has no test; expected {test}")
    return 1 if gaps else 0


if __name__ == "__main__":
    sys.exit(main())
