r"""Evaluates Envoy's regular expressions (RE2) with Python's `re`. An expression is rewritten so that `re` matches
the same texts as RE2. An expression that cannot be rewritten (`\pN`, flags in the middle) raises `Unsure`.

Unlike RE2, Python does not bound the time by the length of the text. This is acceptable because operators write the
expressions.
"""

from __future__ import annotations

import re
from functools import lru_cache

from weft.explain.decision import Unsure

_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r "}
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_FLAGS = re.compile(r"\(\?([is]+)\)")
_REPEAT = re.compile(r"\{\d+(?:,\d*)?\}")
_NAMED = re.compile(r"\(\?P?<([A-Za-z_]\w*)>")
_POSIX_CLASS = re.compile(r"\[:(\^?)(\w+):\]")
_HEXADECIMAL = re.compile(r"x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})")


def matches(expression: str, text: str) -> bool:
    """Whether the expression matches the whole text, as in Envoy."""
    return compiled(expression).fullmatch(text) is not None


def replaced(expression: str, substitution: str, text: str) -> str:
    """The text with every match of the expression replaced by the substitution; `\\1` in the substitution is what the
    first group matched."""
    pattern = compiled(expression)
    parts, end, last = [], 0, -1
    for match in pattern.finditer(text):
        if match.start() == match.end() == last:
            continue  # RE2 skips an empty match at the end of the previous match
        parts += [text[end : match.start()], _filled(substitution, match)]
        end = last = match.end()
    return "".join((*parts, text[end:]))


@lru_cache(maxsize=4096)
def compiled(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(_Rewriter(expression).whole())
    except (re.error, OverflowError, RecursionError) as error:
        raise Unsure(f"the regular expression {expression!r} cannot be evaluated: {error}") from None


def _filled(substitution: str, match: re.Match[str]) -> str:
    def put(escape: re.Match[str]) -> str:
        return "\\" if escape[1] == "\\" else match[int(escape[1])] or ""

    return re.sub(r"\\([0-9\\])", put, substitution)


class _Rewriter:
    def __init__(self, expression: str) -> None:
        self._left, self._at = expression, 0

    def whole(self) -> str:
        flags = _FLAGS.match(self._left)
        if flags is None:
            return self._parts()
        self._at = flags.end()
        return f"(?{''.join(dict.fromkeys(flags[1]))}:{self._parts()})"

    def _parts(self) -> str:
        parts = []
        while self._at < len(self._left):
            parts.append(self._part())
        return "".join(parts)

    def _part(self) -> str:
        left, at = self._left, self._at
        character = left[at]
        self._at += 1
        match character:
            case "\\":
                return self._escape()
            case "[":
                return self._class()
            case "$":
                return r"\Z"
            case "{":
                repetition = _REPEAT.match(left, at)
                if repetition is None:
                    return r"\{"
                self._at = repetition.end()
                return repetition[0]
            case "(" if left.startswith("(?", at) and not left.startswith("(?:", at):
                return self._group(at)
        return character

    def _group(self, at: int) -> str:
        if match := _NAMED.match(self._left, at):
            self._at = match.end()
            return f"(?P<{match[1]}>"
        match = re.compile(r"\(\?[is]+(?:-[is]+)?:").match(self._left, at)
        if match is None:
            raise Unsure(f"the expression {self._left!r} has flags that cannot be evaluated")
        self._at = match.end()
        return match[0]

    def _escape(self) -> str:
        character = self._left[self._at : self._at + 1]
        if match := _HEXADECIMAL.match(self._left, self._at):
            self._at = match.end()
            return re.escape(chr(int(match[1] or match[2], 16)))
        self._at += 1
        if character in _CLASSES:
            return f"[{_CLASSES[character]}]"
        if character.lower() in _CLASSES:
            return f"[^{_CLASSES[character.lower()]}]"
        match character:
            case "C":  # `\C` is any byte
                return "(?s:.)"
            case "z":
                return r"\Z"
            case "b" | "B":
                return rf"(?a:\{character})"
            case "Q":
                end = self._left.find(r"\E", self._at)
                quoted = self._left[self._at : end if end >= 0 else None]
                self._at = end + 2 if end >= 0 else len(self._left)
                return re.escape(quoted)
            case "A" | "a" | "f" | "t" | "n" | "r" | "v":
                return f"\\{character}"
        if character.isalnum() or not character:
            raise Unsure(f"the expression {self._left!r} has \\{character}, which cannot be evaluated")
        return re.escape(character)

    def _class(self) -> str:
        parts = ["["]
        if self._left.startswith("^", self._at):
            parts.append("^")
            self._at += 1
        first = True
        while self._at < len(self._left):
            character = self._left[self._at]
            if character == "]" and not first:
                self._at += 1
                return "".join((*parts, "]"))
            first = False
            if match := _POSIX_CLASS.match(self._left, self._at):
                if match[1] or match[2] not in _POSIX:
                    raise Unsure(f"the expression {self._left!r} has {match[0]}, which cannot be evaluated")
                parts.append(_POSIX[match[2]])
                self._at = match.end()
                continue
            self._at += 1
            parts.append(self._class_escape() if character == "\\" else _literal(character))
        raise Unsure(f"the expression {self._left!r} has a class without an end")

    def _class_escape(self) -> str:
        escaped = self._escape()
        if len(escaped) > 2 and escaped[0] == "[":
            if escaped[1] == "^":
                raise Unsure(f"the expression {self._left!r} has a class that cannot be evaluated")
            return escaped[1:-1]
        if escaped.startswith("("):
            raise Unsure(f"the expression {self._left!r} has a class that cannot be evaluated")
        return escaped


def _literal(character: str) -> str:
    """The character as a regular expression inside a character class. Characters that Python may give a meaning in a
    later version are escaped."""
    return f"\\{character}" if character in "[&~|" else character
