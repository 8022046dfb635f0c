"""Writes docs/reference/checks.md: every check of `weft analyze`, from the table in src/weft/analyze/checks.py.
`python tools/checks.py` writes the page; a test compares it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from weft.analyze.checks import AREAS, CHECKS, RETIRED, Check, in_area

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "checks.md"

_INTRODUCTION = """\
# Checks

Generated from the code by `tools/checks.py`; do not edit. Every check of [`weft analyze`](../analyze.md): what it
finds, what comes of it, and the code of `istioctl analyze` for the same. A code means the same for ever.

An *error* is an object that is refused. A *warning* works, but not as its author may think. An *info* is worth knowing;
a running control plane keeps those to itself.
"""


def page() -> str:
    parts = [_INTRODUCTION]
    for area, title in AREAS.items():
        parts.append(f"## {title}\n\n" + "\n".join(_entry(check) for check in in_area(area)))
    if RETIRED:
        parts.append("## No longer used\n\n" + ", ".join(sorted(RETIRED)) + "\n")
    return "\n".join(parts)


def _entry(check: Check) -> str:
    also = f" In istioctl: {', '.join(check.istio)}." if check.istio else ""
    live = " Only on a running cluster." if check.live else ""
    anchor = f'<a id="{check.code.lower()}"></a>'
    return f"{anchor}\n\n### {check.code}: {check.title}\n\n*{check.severity}.* {check.more}{live}{also}\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}: {len(CHECKS)} checks", file=sys.stderr)
