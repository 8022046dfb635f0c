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


_JOINS = re.compile(r"\s+[rRfFbBuU]{0,2}")  # between two literals that Python joins into one string


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield every comment, and every string of more than one word, with its offset in the source. Adjacent literals are
    one string. Its text has spaces in place of the quotes and of the whitespace between literals, so that offsets in
    the text are those in the source."""
    start, text = 0, ""
    for match in _PROSE.finditer(source):
        literal = _QUOTES.sub(lambda quotes: " " * len(quotes.group()), match.group())
        between = source[start + len(text) : match.start()]
        if text and "#" not in (source[start], source[match.start()]) and _JOINS.fullmatch(between):
            text += " " * len(between) + literal
            continue
        yield from _of_several_words(source, start, text)
        start, text = match.start(), literal
    yield from _of_several_words(source, start, text)


def _of_several_words(source: str, start: int, text: str) -> Iterator[tuple[int, str]]:
    if text and (source[start] == "#" or " " in text.strip()):
        yield start, text


def code(source: str) -> str:
    """Return the source without its comments and strings."""
    return _PROSE.sub(" ", source)
