"""Writes the golden files of translation and injection again, from the current code. Read the diff before you commit
it: it shows how the config of proxies and the injected pods change."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]
    golden, injection = import_module("golden.render"), import_module("inject.bless")
    for case in golden.cases():
        _write(case / "resources.yaml", golden.render(case)[0])
    for case in injection.cases():
        _write(case / "injected.yaml", injection.written(case))
    return 0


def _write(result: Path, text: str) -> None:
    before = result.read_text() if result.exists() else ""
    if before != text:
        result.write_text(text)
        print(f"{'changed' if before else 'new'}: {result.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
