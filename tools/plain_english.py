"""Rejects wording that a newcomer has to read twice: see "How the text reads" in CONTRIBUTING.md.

Reads the comments and strings of src/weft, and the Markdown pages that are written by hand. The number of
matches in each file from before this check is in tools/plain_english.json. A file fails if it has more matches. The
numbers can only shrink: `python -m tools.plain_english --update` lowers them, and never raises one. A moved file keeps
its number. The number of variables with a verb as name (`found`, `said`) is limited in the same way, for all files
together.

`--report` prints the matches per package, and how many variables have a verb as name; `--list PATH...` prints the
matches of some files or folders.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tools.source_text import ROOT, code, prose

BASELINE = Path("tools") / "plain_english.json"
VARIABLES = "variables named found, said, told, made or held"  # the key of their number in the baseline


class Rule(NamedTuple):
    name: str
    pattern: re.Pattern[str]
    instead: str  # what to write


class Match(NamedTuple):
    file: str
    line: int
    words: str
    rule: Rule

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: `{self.words}` ({self.rule.name}): {self.rule.instead}"


_BEGINS = r"(?:(?<=\A)|(?<=[.;:!?]\s)|(?<=\n\n)|(?<=\|\s))"  # beginning of a text, sentence, paragraph or table cell
_DOES = (
    r"(?:answers?|asks?|calls?|comes?|connects?|does|gets?|goes|has|have|holds?|is|are|was|were|knows?|listens?|looks?"
    r"|needs?|reads?|sends?|speaks?|stands?|takes?|trusts?|waits?|wants?)"
)
_SPEAKS = r"(?:says?|said|tells?|told|asks?|asked|hears?)"
_PROGRAM = (
    r"(?:(?:[Tt]he|[Aa]n?|[Ee]ach|[Ee]very|[Ii]ts|[Aa]nother) (?:[\w-]+ )?"
    r"(?:proxy|agent|relay|control plane|server|client|webhook)"
    r"|Envoy|kubelet|[Pp]roxies|[Aa]gents|[Rr]elays|[Cc]lients)"
)
_PEOPLE = r"(?<!person )(?<!people )(?<!user )(?<!users )(?<!operator )(?<!operators )(?<!author )(?<!reader )"

RULES = tuple(
    Rule(name, re.compile(pattern.replace(" ", r"\s+")), instead)
    for name, pattern, instead in (
        ("fronted Of", _BEGINS + r"\s*Of (?!course\b)", "name the subject first: `The ports of a gateway`"),
        (
            "who, for a program",
            r"\b(?:[Nn]obody|[Nn]o one|[Ss]omebody|[Aa]nybody|[Ee]verybody|[Ww]hoever|[Ww]hom)\b",
            "name it: the caller, the client, a proxy, no workload, any client",
        ),
        (
            "who, for a program",
            _PEOPLE.replace(" ", r"\s") + rf"\b(?:(?:those|ones?|all|others) who\b|who {_DOES}\b)",
            "name it: the caller, the client, proxies that …",
        ),
        ("who, for a program", _BEGINS + rf"\s*Who {_DOES}\b", "name it: the caller, clients that …"),
        (
            "told",
            r"\b(?:is|are|was|were|be|been|being|gets?) told\b(?! apart\b)",
            "is sent, is notified, is passed, is logged, is reported",
        ),
        (
            "say of",
            r"\b(?:[Tt]ells?|[Tt]elling|told|[Ss]ays?|said|[Ss]aying|[Ss]peaks?|spoken|[Hh]ears?) of\b",
            "reports, lists, describes; receives",
        ),
        (
            "speech, of a program",
            rf"\b{_PROGRAM} {_SPEAKS}\b(?! (?:apart|for|to)\b)",
            "sends, returns, reports, requests, receives",
        ),
        (
            "speech, of a program",
            _BEGINS + r"\s*(?:Tells|Asks|Says|Hears)\b(?! (?:the|a) (?:user|operator)\b)",
            "Sends, Returns, Reports, Requests, Receives; Distinguishes",
        ),
        (
            "speech, of a program",
            r"\b(?:[Tt]ells? (?:it|them|weft) (?:which|what|where|how|when|to|about|that)|[Ss]ays? which)\b",
            "pass, send, set, name, choose",
        ),
        ("hear", r"\b(?:heard|hears|hearing)\b", "receives, is notified, reads"),
        ("asked", r"\b(?:is|are|was|were|be|been) asked\b(?! for\b)", "is queried, is called, is requested"),
        (
            "says so",
            r"\b(?:says?|said|saying|tells?|told) (?:nothing|so|who|no more)\b",
            "sets, names, contains; is unset; decides",
        ),
        ("of one that", r"\b[Oo]f (?:one|ones|those|what|which) (?:that|which)\b", "repeat the noun"),
    )
)
# Pages that are generated from strings of the code; those strings are checked in the code.
_GENERATED = re.compile(r"^Generated .*do not edit", re.MULTILINE)
_VERBS = re.compile(r"^\s*(?:for )?(?:found|said|told|made|held)\b(?: =|: | in )", re.MULTILINE)


def files(root: Path) -> Iterator[Path]:
    yield from sorted((root / "src" / "weft").rglob("*.py"))
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    yield from sorted(page for page in pages if not _GENERATED.search(page.read_text()[:1000]))


def matches(file: Path, root: Path) -> list[Match]:
    text, name = file.read_text(), file.relative_to(root).as_posix()
    parts = prose(text) if file.suffix == ".py" else [(0, _without_code(text))]
    found = [
        (start + match.start(), " ".join(match.group().split()), rule)
        for start, part in parts
        for rule in RULES
        for match in rule.pattern.finditer(part)
    ]
    return [Match(name, text.count("\n", 0, at) + 1, words, rule) for at, words, rule in sorted(found)]


def _without_code(page: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", lambda match: re.sub(r"[^\n]", "~", match.group()), page, flags=re.DOTALL)


def raised(counts: dict[str, int], baseline: dict[str, int]) -> list[str]:
    """Return the files with more matches than their baseline. New files take over the baseline of deleted files."""
    gone = sum(count for name, count in baseline.items() if name not in counts)
    new = {name: count for name, count in counts.items() if name not in baseline and count}
    above = [name for name, count in counts.items() if name in baseline and count > baseline[name]]
    return sorted(above + (list(new) if sum(new.values()) > gone else []))


def moved(counts: dict[str, int], baseline: dict[str, int]) -> bool:
    """Return whether new files have matches. If `raised` returns nothing, these are at most as many as deleted files
    had."""
    return any(count and name not in baseline for name, count in counts.items())


def _totals(matched: Iterable[Match]) -> Counter[str]:
    """Return the number of matches by package of src/weft or by directory of pages."""
    totals: Counter[str] = Counter()
    for match in matched:
        parts = match.file.split("/")
        totals["/".join(parts[:3]) if parts[0] == "src" else parts[0]] += 1
    return totals


def _report(matched: list[Match], root: Path) -> None:
    for name, count in sorted(_totals(matched).items()):
        print(f"{count:6} {name}")
    print(f"{len(matched):6} in all\n")
    for name, count in Counter(match.rule.name for match in matched).most_common():
        print(f"{count:6} {name}")
    print(f"\n{_variables(root):6} {VARIABLES}")


def _variables(root: Path) -> int:
    sources = (root / "src" / "weft").rglob("*.py")
    return sum(len(_VERBS.findall(code(source.read_text()))) for source in sources)


def main(arguments: list[str], root: Path = ROOT) -> int:
    matched = [match for file in files(root) for match in matches(file, root)]
    if arguments[:1] == ["--report"]:
        _report(matched, root)
        return 0
    if arguments[:1] == ["--list"]:
        print(*(match for match in matched if match.file.startswith(tuple(arguments[1:]))), sep="\n")
        return 0
    counts = {file.relative_to(root).as_posix(): 0 for file in files(root)} | Counter(match.file for match in matched)
    baseline: dict[str, int] = json.loads((root / BASELINE).read_text())
    variables, limit = _variables(root), baseline.pop(VARIABLES, 0)
    worse = raised(counts, baseline)
    for name in worse:
        print(*(match for match in matched if match.file == name), sep="\n")
        print(f"{name}: {counts[name]} matches, but the baseline allows {baseline.get(name, 0)}\n")
    if variables > limit:
        print(f"{variables} {VARIABLES}, but the baseline allows {limit}: name the new ones by a noun\n")
    if worse or variables > limit:
        return 1
    if arguments == ["--update"]:
        kept = {name: count for name, count in sorted(counts.items()) if count}
        if variables:
            kept[VARIABLES] = variables
        (root / BASELINE).write_text(json.dumps(kept, indent=0) + "\n")
    elif moved(counts, baseline):
        print(f"files were moved: run `python -m tools.plain_english --update` and commit {BASELINE}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
