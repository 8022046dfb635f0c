"""Writes docs/troubleshooting.md from the broken meshes in tests/broken: for each, the symptom, the cause, the
command to type and the output to look for. Tests run the same files, so the page cannot contain output that no
command prints. `python tools/troubleshooting.py` writes the page; a test checks that it is up to date."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MESHES = ROOT / "tests" / "broken"
PAGE = ROOT / "docs" / "troubleshooting.md"

_MARK = re.compile(r"# ([A-Z]+)$")
_NAMES = re.compile(r"\b[A-Z]{3,}\b")
_HEADINGS = (
    "A call fails with 503",
    "A call is rejected, or gets no response",
    "A rule does not have the intended effect",
    "A change has no effect at all",
    "Before it is applied",
    "A proxy, a certificate or the control plane fails",
    "A pod has no proxy",
)

_INTRODUCTION = """\
# What you see, and what to type

Generated from `tests/broken` by `tools/troubleshooting.py`; do not edit. Each row describes a mesh with
one mistake, and the commands that find the mistake. Tests run these commands on such a mesh and check that the output
has the text of the last column, with the file and line of the mistake (`FILE:LINE`; on a cluster, the name of the
object).

If you do not know where to begin:

| | |
|---|---|
| one request has an unexpected result | `weft explain FROM --to URL` |
| something is wrong with a pod or a service | `weft describe pod NAME`, `weft describe svc NAME` |
| something is wrong in an unknown place | `weft status` on one machine, `weft analyze -A` on a cluster; `weft audit` |
| the result of a request has changed: when, and by which change? | `weft bisect FROM --to URL`, `weft history` |
| a message has a code such as WFT0104 | `weft analyze --explain WFT0104`, or [all checks](reference/checks.md) |
"""
_COLUMNS = "| symptom | cause | commands to type | text in the output of the first command |"


class Typed(NamedTuple):
    """A command, and the lines that must occur in its output. In these lines, `…` stands for any text, and a mark
    for the `FILE:LINE` of the marked line."""

    command: str
    words: tuple[str, ...]


class Broken(NamedTuple):
    name: str
    under: str  # the heading of the page under which the row is
    what: str
    seen: str
    gets: tuple[str, ...]  # `CALLER URL OUTCOME`: the real result of requests
    typed: tuple[Typed, ...]
    text: str  # the text of the whole file
    marks: dict[str, int]  # mark → number of the marked line, to which the output of the commands must refer

    def pattern(self, words: str) -> re.Pattern[str]:
        """Return the regular expression that finds one of `Typed.words` in the output of a command."""
        parts = []
        for part in re.split(r"(…|\b[A-Z]{3,}\b)", words):
            if part == "…":
                parts.append(".*")
            elif part in self.marks:
                parts.append(rf"[^\s()]*\b{re.escape(self.name)}\.yaml:{self.marks[part]}(?!\d)")
            else:
                parts.append(re.escape(part))
        return re.compile("".join(parts))


def read(path: Path) -> Broken:
    """Parse the header of a broken mesh. Raise ValueError if the header is invalid."""
    text = path.read_text(encoding="utf-8")
    fields: dict[str, list[str]] = {"under": [], "broken": [], "seen": [], "gets": []}
    typed: list[tuple[str, list[str]]] = []
    marks: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("# $ "):
            typed.append((line.removeprefix("# $ "), []))
        elif line.startswith("#   ") and typed:
            typed[-1][1].append(line.removeprefix("#   "))
        elif line.startswith("# "):
            name, _, value = line.removeprefix("# ").partition(": ")
            if name not in fields:
                raise ValueError(f"{path}:{number}: unknown field `{name}`; the fields are {', '.join(fields)}")
            fields[name].append(value)
        elif mark := _MARK.search(line):
            marks[mark[1]] = number
    if not typed or not all(words for _, words in typed) or fields["under"][0] not in _HEADINGS:
        raise ValueError(f"{path}: has no command, a command without expected output, or an unknown heading")
    return Broken(
        path.stem,
        fields["under"][0],
        fields["broken"][0],
        fields["seen"][0],
        tuple(fields["gets"]),
        tuple(Typed(command, tuple(words)) for command, words in typed),
        text,
        marks,
    )


def broken(kind: str) -> list[Broken]:
    """Return all broken meshes of a kind: `mesh`, `files`, `running` or `kubernetes`."""
    return [read(path) for path in sorted((MESHES / kind).glob("*.yaml"))]


def page() -> str:
    every = [each for kind in sorted(path.name for path in MESHES.iterdir() if path.is_dir()) for each in broken(kind)]
    parts = [_INTRODUCTION]
    for heading in _HEADINGS:
        rows = [_row(each) for each in every if each.under == heading]
        parts.append(f"## {heading}\n\n{_COLUMNS}\n|---|---|---|---|\n" + "".join(rows))
    return "\n".join(parts)


def _row(each: Broken) -> str:
    commands = "<br>".join(f"`{_cell(typed.command)}`" for typed in each.typed)
    output = _NAMES.sub(lambda match: "FILE:LINE" if match[0] in each.marks else match[0], each.typed[0].words[-1])
    return f"| {_cell(each.seen)} | {_cell(each.what)} | {commands} | {_cell(output)} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace(" --mesh MESH", "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}", file=sys.stderr)
