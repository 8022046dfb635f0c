"""Writes docs/reference/rules.md: every rule that `weft why` names, from src/weft/inspect/reasons/rules.py. `python
tools/rules.py` writes the page; a test checks that it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from weft.inspect.reasons.rules import RULES, DecisionRule

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "rules.md"

_INTRODUCTION = """\
# Rules

Generated from the code by `tools/rules.py`; do not edit. This page lists every rule that
[`weft why`](../why.md) names: the defaults for what no object sets, and the precedence where several objects set the
same. The meaning of a name never changes.
"""


def page() -> str:
    return "\n".join((_INTRODUCTION, "| rule | meaning | more |\n|---|---|---|", *map(_row, RULES.values()), ""))


def _row(rule: DecisionRule) -> str:
    return f'| <a id="{rule.name}"></a>`{rule.name}` | {rule.says} | [{rule.page}](../{rule.page}) |'


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}: {len(RULES)} rules", file=sys.stderr)
