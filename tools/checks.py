"""Writes docs/reference/checks.md: every check of `weft analyze`, from the table in src/weft/analyze/checks.py.
`python -m tools.checks` writes the page; a test checks that it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.istio_checks import ELSEWHERE, NOT_APPLICABLE, TITLES

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

_ISTIO = """\
## Codes of istioctl analyze

Every message of `istioctl analyze` 1.31, and the check of weft for the same mistake. *Not applicable*: the mistake
cannot be made with weft.
"""


def page() -> str:
    parts = [_INTRODUCTION]
    for area, title in AREAS.items():
        parts.append(f"## {title}\n\n" + "\n".join(_entry(check) for check in in_area(area)))
    if RETIRED:
        parts.append("## No longer used\n\n" + ", ".join(sorted(RETIRED)) + "\n")
    parts.append(_by_istio())
    return "\n".join(parts)


def _by_istio() -> str:
    """Return the table of istioctl's codes with weft's."""
    rows = []
    for code, title in TITLES.items():
        ours = [f"[{each.code}](#{each.code.lower()})" for each in CHECKS.values() if code in each.istio]
        reason = NOT_APPLICABLE.get(code)
        note = ", ".join(ours) or ELSEWHERE.get(code) or (f"not applicable: {reason}" if reason else "no check")
        rows.append(f"| {code} | {title} | {note} |")
    return "\n".join((_ISTIO, "| istioctl | its name | weft |", "|---|---|---|", *rows, ""))


def _entry(check: Check) -> str:
    also = f" In istioctl: {', '.join(check.istio)}." if check.istio else ""
    live = " Only on a running cluster." if check.live else ""
    anchor = f'<a id="{check.code.lower()}"></a>'
    heading = f"{anchor}\n\n### {check.code}\n\n"
    return f"{heading}*{check.severity}*: **{check.title}.** {check.more}{live}{also}\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}: {len(CHECKS)} checks", file=sys.stderr)
