"""Splits Python source into prose (comments and strings) and code, with one regular expression.

`ast` and `tokenize` are exact, but take seconds for all of src/weft; this takes a fifth of a second. An f-string
counts as one string, including its expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_PROSE = re.compile(
    r'"""(?:[^\\]|\\.)*?"""'
    r"|'''(?:[^\\]|\\.)*?'''"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'(?:[^'\\\n]|\\.)*'"
    r"|#[^\n]*",
    re.DOTALL,
)
_QUOTES = re.compile(r'^(?:"""|\'\'\'|"|\'|#+:? ?)|(?:"""|\'\'\'|"|\')$')


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield every comment, and every string of more than one word, with its offset in the source."""
    for match in _PROSE.finditer(source):
        text = match.group()
        if text[0] == "#" or " " in text:
            yield match.start(), _QUOTES.sub(lambda quotes: " " * len(quotes.group()), text)


def code(source: str) -> str:
    """Return the source without its comments and strings."""
    return _PROSE.sub(" ", source)
