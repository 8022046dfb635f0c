"""Parses the text of one YAML document into plain data, with the line of every field. It is used for each document of a
file, and for the text embedded in the MeshConfig. Rule: depth, nodes and aliases are limited, so that no text can
exhaust the process's memory or time. Problems are returned as flaws with a line, never as exceptions of the YAML
library."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import yaml

from weft.base.problem import Severity

MOST_DEPTH = 64  # Istio's deepest field is at level 12
MOST_NODES = 500_000  # counted after aliases are expanded, against "billion laughs"

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_TAGS = ("str", "int", "float", "bool", "null", "map", "seq")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {word: kind for kind, text in ((True, "true"), (False, "false"))
             for word in (text, text.title(), text.upper())}  # fmt: skip
# Words that are booleans in YAML 1.1 and Kubernetes, although authors mostly mean the word.
_DOUBTFUL = {word: kind for kind, words in (("true", "yes on"), ("false", "no off")) for text in words.split()
             for word in (text, text.title(), text.upper())}  # fmt: skip
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,19}|0x[0-9a-fA-F]{1,16}|0o[0-7]{1,21})")
_FLOAT = re.compile(r"(?=.*[.eE])[-+]?(\.[0-9]{1,64}|[0-9]{1,64}(\.[0-9]{0,64})?)([eE][-+]?[0-9]{1,3})?")

TEXT = 0  # last part of the path that has the line of the first line of text in a literal block (`|`)

Path = tuple[str | int, ...]


class TextFlaw(msgspec.Struct, frozen=True):
    """A problem of the YAML text itself, found before its content is interpreted. `line`: its line in the file. `what`:
    the message."""

    line: int
    what: str
    hint: str = ""
    severity: Severity = Severity.ERROR


class Composed(msgspec.Struct, frozen=True):
    value: Any
    line: int  # the line where the content starts
    lines: dict[Path, int]
    flaws: tuple[TextFlaw, ...] = ()


class YamlError(Exception):
    """Raised if a text is not YAML, so that no part of it can be used."""

    def __init__(self, flaw: TextFlaw) -> None:
        super().__init__(flaw.what)
        self.flaw = flaw


def compose(text: str, first_line: int = 1, *, most_nodes: int = MOST_NODES) -> Composed:
    """Parse the text of one YAML document into its value, with the line of every field and the problems of the text.
    `first_line`: the line of the file on which the text begins. `most_nodes`: the limit of values. Raises YamlError,
    and nothing else, if the text is not YAML or exceeds a limit."""
    try:
        return _Composer(text, first_line, most_nodes).document()
    except yaml.YAMLError as error:
        raise YamlError(_flaw_of(error, text, first_line)) from error
    except (ValueError, RecursionError) as error:  # not wrapped by the library: a year 0, a bad escape
        raise YamlError(TextFlaw(first_line, f"this is not YAML: {error}")) from error


class _Composer:
    def __init__(self, text: str, first_line: int, most_nodes: int) -> None:
        self._loader = _Loader(text)
        self._first_line = first_line
        self._anchors: dict[str, tuple[Any, dict[Path, int]]] = {}
        self._nodes, self._most_nodes = 0, most_nodes
        self._flaws: list[TextFlaw] = []

    def document(self) -> Composed:
        try:
            self._next(yaml.StreamStartEvent)
            if self._loader.check_event(yaml.StreamEndEvent):
                return Composed(value=None, line=self._first_line, lines={})
            self._next(yaml.DocumentStartEvent)
            line = self._line(self._loader.peek_event())
            lines: dict[Path, int] = {}
            value = self._node((), lines)
            self._next(yaml.DocumentEndEvent)
            self._next(yaml.StreamEndEvent)
            return Composed(value=value, line=line, lines=lines, flaws=tuple(self._flaws))
        finally:
            self._loader.dispose()

    def _node(self, path: Path, lines: dict[Path, int]) -> Any:
        event = self._loader.get_event()
        line = self._line(event)
        self._count(1, line, len(path))
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor or "", path, lines, line)
        lines.setdefault(path, line)
        outer = lines
        if event.anchor:  # collect the lines below an anchor separately, so that an alias finds them at once
            lines = {path: line}
        tag = self._tag(event.tag, line)
        if isinstance(event, yaml.ScalarEvent):
            value: Any = self._scalar(event, tag, line, path)
            if event.style == "|":
                lines[(*path, TEXT)] = line + 1
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            while not self._loader.check_event(yaml.SequenceEndEvent):
                value.append(self._node((*path, len(value)), lines))
            self._loader.get_event()
        else:
            value = self._mapping(path, lines)
        if event.anchor:
            inner = {at[len(path) :]: place for at, place in lines.items()}
            self._anchors[event.anchor] = (value, inner)
            outer.update({at: place for at, place in lines.items() if at != path})
        return value

    def _mapping(self, path: Path, lines: dict[Path, int]) -> dict[str, Any]:
        value: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        while not self._loader.check_event(yaml.MappingEndEvent):
            key_event = self._loader.peek_event()
            line = self._line(key_event)
            plain = isinstance(key_event, yaml.ScalarEvent) and not key_event.style
            key = self._key(self._node((*path, ""), {}), plain, key_event, line)
            if key == "<<" and plain:
                for source in self._merged(self._node((*path, key), {}), line):
                    merged.update({name: member for name, member in source.items() if name not in merged})
                continue
            if key in value:
                first = lines.get((*path, key), line)
                self._flaw(
                    line,
                    f"`{key}` is set twice, here and on line {first}",
                    "keep only one of the two: YAML would silently use the last value",
                )
            lines[(*path, key)] = line
            value[key] = self._node((*path, key), lines)
        self._loader.get_event()
        return {**merged, **value} if merged else value

    def _key(self, key: Any, plain: bool, event: Any, line: int) -> str:
        if isinstance(key, str):
            return key
        if isinstance(key, int) and not isinstance(key, bool):
            return str(event.value)  # `portLevelMtls: {9090: …}` is common; Kubernetes, too, reads the key as text
        written = event.value if isinstance(event, yaml.ScalarEvent) else "a list or mapping"
        what = f"a field name must be text, not {written!r}" if plain else f"a field name must be text, not {written}"
        self._flaw(line, what, f'put it in quotes: "{written}"' if plain and written else "")
        return str(written)

    def _merged(self, value: Any, line: int) -> list[dict[str, Any]]:
        sources = value if isinstance(value, list) else [value]
        if all(isinstance(source, dict) for source in sources):
            return sources
        self._flaw(line, "`<<` merges a mapping or a list of mappings", "name an anchor: `<<: *base`")
        return []

    def _alias(self, anchor: str, path: Path, lines: dict[Path, int], line: int) -> Any:
        if anchor not in self._anchors:
            self._flaw(line, f"the anchor `&{anchor}` is not known here", "an anchor must come before its alias")
            return None
        value, inner = self._anchors[anchor]
        # Every use of an alias counts with its expanded size, because nested aliases multiply.
        self._count(len(inner), line, len(path) + max((len(at) for at in inner), default=0))
        lines.setdefault(path, line)
        lines.update({(*path, *at): place for at, place in inner.items() if at})
        return value

    def _scalar(self, event: Any, tag: str, line: int, path: Path = ()) -> Any:
        text: str = event.value
        if tag == "str" or (not tag and event.style):
            return text
        value = _resolve(text)
        if not tag and isinstance(value, str) and text in _DOUBTFUL:
            of_text = len(path) > 1 and path[-2] in ("annotations", "labels")  # where a boolean is rejected
            self._flaws.append(
                TextFlaw(
                    line,
                    f"`{text}` without quotes is read as text here, but as {_DOUBTFUL[text]} by Kubernetes",
                    "only text is allowed here: put it in quotes"
                    if of_text
                    else f'write "{text}" or {_DOUBTFUL[text]}',
                    Severity.WARNING,
                )
            )
        if tag == "float" and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if tag and not isinstance(value, {"int": int, "float": float, "bool": bool, "null": type(None)}.get(tag, str)):
            self._flaw(line, f"`{text[:40]}` is not a {tag}")
        return value

    def _tag(self, tag: str | None, line: int) -> str:
        if tag is None or tag == "!":
            return "str" if tag else ""
        short = tag.removeprefix(_TAG)
        if short not in _TAGS:
            self._flaw(line, f"the YAML tag `{tag[:60]}` is not known", "write the value without a tag")
            return "str"
        return short

    def _count(self, nodes: int, line: int, depth: int) -> None:
        self._nodes += nodes
        if depth > MOST_DEPTH:
            raise YamlError(TextFlaw(line, f"the document is nested deeper than {MOST_DEPTH} levels"))
        if self._nodes > self._most_nodes:
            raise YamlError(
                TextFlaw(
                    line,
                    f"the document has more than {self._most_nodes} values",
                    "split the document, or use fewer aliases",
                )
            )

    def _line(self, event: Any) -> int:
        return self._first_line + int(event.start_mark.line)

    def _flaw(self, line: int, what: str, hint: str = "") -> None:
        if len(self._flaws) < 100:
            self._flaws.append(TextFlaw(line, what, hint))

    def _next(self, kind: type) -> None:
        event = self._loader.get_event()
        if not isinstance(event, kind):  # happens only if the text has a second document, which callers split off
            raise YamlError(TextFlaw(self._line(event), "a second document begins here"))


def _resolve(text: str) -> Any:
    """Return the value of an unquoted word by YAML 1.2, where `yes`, 1:30 and 2026-01-01 are text."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text) and len(text) <= 64:
        return float(text)
    return text


_HINTS = {
    "mapping values are not allowed in this context": "indent as above, or quote a value that contains `: `",
    "did not find expected key": "check the indentation of this line and the line above",
    "did not find expected '-' indicator": "check the indentation of this list",
    "could not find expected ':'": "a field needs `name: value`; is the line above complete?",
    "found unexpected end of stream": "is the file complete? a quote or bracket is still open",
    "did not find expected node content": "a value is missing here; or a `[` or `{` is still open",
    "did not find expected ',' or '}'": "a `{` is still open",
    "did not find expected ',' or ']'": "a `[` is still open",
    "control characters are not allowed": "is this a text file?",
    "found character that cannot start any token": "quote a value that begins with %, @ or `",
}


def _flaw_of(error: yaml.YAMLError, text: str, first_line: int) -> TextFlaw:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    what = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
    if mark is None:
        position = int(getattr(error, "position", 0) or 0)
        return TextFlaw(first_line + text[:position].count("\n"), f"this is not YAML: {what}", _HINTS.get(what, ""))
    row = text.split("\n")[mark.line] if mark.line < text.count("\n") + 1 else ""
    line = first_line + min(int(mark.line), max(0, text.rstrip("\n").count("\n")))
    if "\t" in row[: len(row) - len(row.lstrip())]:
        return TextFlaw(line, "a tab is used for indentation", "YAML indents with spaces only")
    return TextFlaw(line, f"this is not YAML: {what}", _HINTS.get(what, ""))
