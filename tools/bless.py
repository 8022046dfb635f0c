"""Writes the golden translation results anew. Read the diff before you commit it: it is what proxies will get."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]
    golden = import_module("golden.render")
    for case in golden.cases():
        text, _ = golden.render(case)
        result = case / "resources.yaml"
        before = result.read_text() if result.exists() else ""
        if before != text:
            result.write_text(text)
            print(f"{'changed' if before else 'new'}: {result.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
