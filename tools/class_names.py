"""Checks that public class names are unique in src/weft, and that the glossary in ARCHITECTURE.md matches the code.

Classes that are private to their module (`_Name`) are not checked.

The glossary is the table under "## Words". This tool checks that no word is defined twice, that every word (or its
plural) is part of an identifier in src/weft, and that the names in the definitions, in backticks or like
`WorkloadEntry`, also occur in src/weft. It cannot check whether a definition is right.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

from tools.source_text import ROOT, code

_CLASS = re.compile(r"^class ([A-Z]\w*)", re.MULTILINE)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAME = re.compile(r"\b[A-Z][a-z]+[A-Z]\w*|`([^`]+)`")


def duplicated(root: Path) -> list[str]:
    """Return an error line for each public class name that several files in src/weft define."""
    places = defaultdict(list)
    for source in sorted((root / "src" / "weft").rglob("*.py")):
        for name in _CLASS.findall(code(source.read_text())):
            places[name].append(source.relative_to(root).as_posix())
    return [
        f"class {name}: defined in {', '.join(files)}; public class names must be unique: choose another name"
        for name, files in sorted(places.items())
        if len(files) > 1
    ]


def glossary(root: Path) -> list[str]:
    """Return the errors in the glossary table, one line each."""
    sources = [source.read_text() for source in (root / "src" / "weft").rglob("*.py")]
    identifiers = {each for source in sources for each in _IDENTIFIER.findall(code(source))}
    parts = {part.lower() for each in identifiers for part in _PART.findall(each)}
    text = "\n".join(sources)
    rows = _rows((root / "ARCHITECTURE.md").read_text())
    words = Counter(word for word, _ in rows)
    problems = [] if rows else ["ARCHITECTURE.md: no table under `## Words`"]
    problems += [f"ARCHITECTURE.md: `{word}` is defined {count} times" for word, count in words.items() if count > 1]
    problems += [
        f"ARCHITECTURE.md: no identifier in src/weft has `{word}` in it: remove the row, or use the word"
        for word in words
        if not all({part, f"{part}s"} & parts for part in word.lower().split())
    ]
    for word, meaning in rows:
        names = (match.group(1) or match.group() for match in _NAME.finditer(meaning))
        problems += [
            f"ARCHITECTURE.md: the definition of `{word}` uses {name}, which is not in src/weft"
            for name in names
            if not _known(name, text)
        ]
    return problems


def _rows(page: str) -> list[tuple[str, str]]:
    table = page.partition("\n## Words\n")[2].partition("\n## ")[0]
    cells = (line.strip("| ").split(" | ", 1) for line in table.splitlines() if line.startswith("| "))
    return [(word.strip("`*"), meaning) for word, meaning in cells][1:]


def _known(name: str, text: str) -> bool:
    """Return whether all words of the name occur in the text. Words in capitals are placeholders of a code example
    and are not checked."""
    return all(word in text for word in re.findall(r"\w*[a-z]\w*", name))


def main() -> int:
    problems = duplicated(ROOT) + glossary(ROOT)
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
