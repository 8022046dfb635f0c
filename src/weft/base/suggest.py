"""Guess which word somebody meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint such as ``did you mean `retries`?``, or the known words if none is near."""
    words = sorted(known)
    by_lower = {known_word.lower(): known_word for known_word in words}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    if near:
        return f"did you mean `{by_lower[near[0]]}`?"
    if 0 < len(words) <= 12:
        return "known here: " + ", ".join(words)
    return ""
