"""Suggestions for misspelled words."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

_MOST_LISTED = 12


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint such as ``did you mean `retries`?``. If no known word is similar to `word`, return a list of the
    known words, or "" if they are too many to list."""
    words = sorted(known)
    near = _nearest(word, words)
    if near:
        return f"did you mean `{near}`?"
    return _listed(words)


def did_you_mean_name(word: str, known: Collection[str]) -> str:
    """Return a hint as `did_you_mean` does, for a host name (`word`); host names are long and mostly alike. Suggests a
    name in `known` that differs only in its first label, else a name with the same first label. Other names are not
    compared, so this is fast with many names."""
    first, _, rest = word.partition(".")
    beside: dict[str, str] = {}
    elsewhere: dict[str, str] = {}
    for name in known:
        head, _, tail = name.partition(".")
        if tail == rest:
            beside[head] = name
        elif head == first:
            elsewhere[tail] = name
    for part, names in ((first, beside), (rest, elsewhere)):
        near = _nearest(part, sorted(names))
        if near:
            return f"did you mean `{names[near]}`?"
    return _listed(sorted(known)) if len(known) <= _MOST_LISTED else ""


def _nearest(word: str, known: list[str]) -> str:
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[near[0]] if near else ""


def _listed(words: list[str]) -> str:
    return "known here: " + ", ".join(words) if 0 < len(words) <= _MOST_LISTED else ""
