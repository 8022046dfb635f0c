"""Writes docs/reference/checks.md: every check of `weft analyze`, from the table in src/weft/analyze/checks.py.
`python tools/checks.py` writes the page; a test checks that it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from weft.analyze.checks import AREAS, CHECKS, RETIRED, Check, in_area

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "checks.md"

_INTRODUCTION = """\
# Checks

Generated from the code by `tools/checks.py`; do not edit. This page lists every check of
[`weft analyze`](../analyze.md): what the check finds, the effect of the mistake, and the code of the same check in
`istioctl analyze`. The meaning of a code never changes.

An *error* is an object that is rejected. A *warning* is an object that works, but perhaps not as its author intends. An
*info* is worth knowing; `weft status` does not show infos.
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
    heading = f"{anchor}\n\n### {check.code}\n\n"
    return f"{heading}*{check.severity}*: **{check.title}.** {check.more}{live}{also}\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}: {len(CHECKS)} checks", file=sys.stderr)
