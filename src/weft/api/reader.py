"""Reads the fields of a document: `Fields` is a cursor at one mapping, with a typed getter for each type of value. The
readers of all kinds access documents only through it. Rule: a getter always returns a value of its type and never
raises: a value that is not valid is left out, and a problem is recorded with its line. Fields that no getter has read
are reported as unknown at the end."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from weft.api.document import Path
from weft.api.regex import regex_flaw
from weft.api.report import Consequence, DocumentReport
from weft.api.syntax import (
    has_milliseconds_at_most,
    is_address,
    is_header,
    is_host,
    is_label_name,
    is_label_value,
    is_range,
    parse_duration,
)
from weft.api.yaml_text import TEXT
from weft.base.problem import Severity
from weft.base.suggest import did_you_mean
from weft.model.names import Labels, labels_of

MOST_ITEMS = 5_000  # of one list or mapping
MOST_TEXT = 1 << 20  # characters; the longest text is the body of a direct response
MILLISECOND = timedelta(milliseconds=1)

_LONGEST = timedelta(days=3_650)
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,18})", re.ASCII)


class Fields:
    """One mapping of a document, with getters for its fields. A field set to null is absent, as in Kubernetes."""

    def __init__(self, report: DocumentReport, path: Path, body: Mapping[str, Any]) -> None:
        self.report, self.path, self._body = report, path, body
        self._known: set[str] = set()
        self._synonyms: dict[str, str] = {}
        report.opened(self)

    @property
    def line(self) -> int:
        return self.report.document.where(self.path).line

    def has(self, name: str) -> bool:
        return self.raw(name) is not None

    def raw(self, name: str) -> Any:
        self._known.add(name)
        return self._body.get(name)

    def error(self, name: str | Path, what: str, hint: str = "") -> None:
        self.report.error(self._at(name), what, hint)

    def warning(self, name: str | Path, what: str, hint: str = "", *, code: str = "") -> None:
        self.report.warning(self._at(name), what, hint, code=code)

    def lacks(
        self,
        *names: str,
        what: str,
        hint: str = "",
        at: str | Path = (),
        below: Iterable[Fields] = (),
        severity: Severity = Severity.ERROR,
    ) -> None:
        """Report the problem `what`, such as "`name` is required": none of the fields `names` has a usable value. The
        fields are those of this mapping, or of each mapping in `below` if it is not empty. `at`: the path of the
        problem, below this mapping; empty for this mapping itself. If one of these fields has an error of its own, or
        is misspelled, only that error is reported, so that one mistake gives one message."""
        causes = tuple((fields, name) for fields in (tuple(below) or (self,)) for name in names)
        self.report.consequence(Consequence(causes, self._at(at), what, hint, severity))

    def text(self, name: str, *, default: str = "", required: bool = False, most: int = MOST_TEXT) -> str:
        value = self._value(name, required=required)
        return default if value is None else self._text((name,), value, most)

    def integer(self, name: str, *, least: int = 0, most: int = 2**31 - 1) -> int | None:
        value = self._value(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        value = self._unquoted(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self.error(name, f"`{name}` must be a whole number, not {describe(value)}")
            return None
        if not least <= value <= most:
            self.error(name, f"`{name}` must be between {least} and {most}, not {_written(value)}")
            return None
        return value

    def number(self, name: str, *, least: float, most: float) -> float | None:
        value = self._value(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or _is_nan(value):
            self.error(name, f"`{name}` must be a number, not {describe(value)}")
            return None
        if not least <= value <= most:
            self.error(name, f"`{name}` must be between {least:g} and {most:g}, not {_written(value)}")
            return None
        return float(value)

    def percent(self, name: str) -> float | None:
        """Read a percentage as Istio writes it: `{value: 12.5}`. An object without `value` is 0, as in protobuf; None
        if the field is not set."""
        fields = self.fields(name)
        return None if fields is None else fields.number("value", least=0, most=100) or 0.0

    def port(self, name: str, *, required: bool = False) -> int:
        """Read a port number; 0 if the field is not set or not valid. `required`: a missing field is an error."""
        self._value(name, required=required)
        return self.integer(name, least=1, most=65_535) or 0

    def ports(self, name: str) -> tuple[int, ...]:
        numbers = []
        for index, value in enumerate(map(self._unquoted, self._list(name))):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65_535:
                self.error((name, index), f"a port is a number between 1 and 65535, not {describe(value)}")
            else:
                numbers.append(value)
        return tuple(numbers)

    def boolean(self, name: str) -> bool | None:
        value = self._value(name)
        if value is None or isinstance(value, bool):
            return value
        self.error(name, f"`{name}` must be true or false, not {describe(value)}")
        return None

    def choice(self, name: str, choices: Iterable[str], *, default: str = "", refused: Iterable[str] = ()) -> str:
        """Read one of the values in `choices`; `default` if the field is not set or not valid. `refused`: further
        values that are returned without an error, because the caller reports them with a better message."""
        value = self.text(name, default=default, most=200)
        known = (*choices, *refused)
        if value in known or value == default:
            return value
        self.error(name, f"`{name}` cannot be `{value}`", did_you_mean(value, known))
        return default

    def duration(self, name: str, *, least: timedelta = MILLISECOND, required: bool = False) -> timedelta | None:
        """Read a duration in Go's format (`1.5s`, `100ms`, `1h2m`). None if the field is not set, or its value is not
        valid or shorter than `least`. `required`: a missing field is an error."""
        value = self._value(name, required=required)
        if value is None:
            return None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            self.error(name, f"`{name}` has no unit", f"write {_written(value)}s or {_written(value)}ms")
            return None
        text = self._text((name,), value, 64)
        length = parse_duration(text)
        if length is None:
            self.error(name, f"`{name}` must be a duration, not {describe(value)}", "for example 1.5s, 100ms or 1h2m")
        elif length < least:
            self.error(
                name,
                f"`{name}` must be at least {_short(least)}, not {text}",
                "leave the field out for no limit" if not length else "",
            )
            return None
        elif not has_milliseconds_at_most(text):
            self.error(name, f"`{name}` must be a whole number of milliseconds, not {text}")
            return None
        elif length > _LONGEST:
            self.error(name, f"`{name}` must be shorter than ten years, not {text}")
            return None
        return length

    def texts(self, name: str, *, required: bool = False, most: int = 4_096) -> tuple[str, ...]:
        return tuple(
            self._text((name, index), value, most) for index, value in enumerate(self._list(name, required=required))
        )

    def string_map(self, name: str) -> dict[str, str]:
        value = self._value(name)
        if value is None:
            return {}
        if not isinstance(value, (dict, Mapping)):
            self.error(name, f"`{name}` must be a mapping of names to text, not {describe(value)}")
            return {}
        if self._too_many(name, value):
            return {}
        return {self._text((name, str(key)), key, 4_096): self._text((name, str(key)), text, MOST_TEXT)
                for key, text in value.items()}  # fmt: skip

    def integer_map(self, name: str, *, least: int, most: int) -> dict[str, int]:
        """Read a mapping of names to whole numbers between `least` and `most`; other entries are reported and left
        out."""
        fields = self.fields(name)
        if fields is None or self._too_many(name, fields._body):
            return {}
        numbers = {str(key): fields.integer(str(key), least=least, most=most) for key in fields._body}
        return {key: number for key, number in numbers.items() if number is not None}

    def labels(self, name: str) -> Labels:
        """Read a mapping of labels, whose names and values follow Kubernetes' rules."""
        valid = {}
        for key, value in self.string_map(name).items():
            flaw = (
                f"`{key[:80]}` is not a label name"
                if not is_label_name(key)
                else f"`{value[:80]}` is not a label value"
                if not is_label_value(value)
                else ""
            )
            if flaw:
                self.error((name, key), flaw, "use letters, digits, -, _ and . (at most 63)")
            else:
                valid[key] = value
        return labels_of(valid)

    def fields(self, name: str, *, required: bool = False) -> Fields | None:
        """Return the mapping in this field; None if the field is not set or not a mapping. `required`: a missing field
        is an error."""
        value = self._value(name, required=required)
        if value is None:
            return None
        return self._fields((name,), value)

    def embedded(self, name: str, value: Mapping[str, Any], lines: Mapping[Path, int] | None = None) -> Fields:
        """Return the cursor at `value`, a mapping that was parsed from the text of the field `name`. `lines`: the line
        in the file of each field of `value`, by its path. Without `lines`, problems in `value` have the line of the
        field `name`."""
        path = (*self.path, name)
        if lines:
            self.report.add_lines({(*path, *below): line for below, line in lines.items() if below})
        return Fields(self.report, path, value)

    def text_line(self, name: str) -> int:
        """Return the line of the file on which the text of this field begins; 0 if the lines of the text are not lines
        of the file."""
        return self.report.document.lines.get((*self.path, name, TEXT), 0)

    def items(self, name: str, *, required: bool = False) -> list[Fields]:
        """Read a list of mappings; items that are not mappings are left out. `required`: a missing field is an
        error."""
        entries = (
            self._fields((name, index), value) for index, value in enumerate(self._list(name, required=required))
        )
        return [fields for fields in entries if fields is not None]

    def entries(self, name: str) -> list[tuple[str, Fields]]:
        """Read a mapping from names to mappings, such as header matches, and return each name with the cursor at its
        mapping; entries that are not mappings are left out."""
        value = self._value(name)
        if value is None:
            return []
        if not isinstance(value, (dict, Mapping)):
            self.error(name, f"`{name}` must be a mapping, not {describe(value)}")
            return []
        if self._too_many(name, value):
            return []
        pairs = []
        for key, member in value.items():
            fields = self._fields((name, str(key)), member)
            if fields is not None:
                pairs.append((self._text((name, str(key)), key, 4_096), fields))
        return pairs

    def checked(
        self,
        name: str,
        valid: Callable[[str], bool],
        what: str,
        hint: str = "",
        *,
        default: str = "",
        required: bool = False,
        most: int = 255,
    ) -> str:
        """Read a text that `valid` accepts, such as an address; `default` if the field is not set, empty or not valid.
        `what`: what the text should be, for the message, such as "an IP address". `most`: the largest number of
        characters. `required`: a missing field is an error."""
        value = self.text(name, default=default, required=required, most=most)
        if not value or valid(value):
            return value or default
        self.error(name, f"`{value[:80]}` is not {what}", hint)
        return default

    def checked_texts(
        self,
        name: str,
        valid: Callable[[str], bool],
        what: str,
        hint: str = "",
        *,
        required: bool = False,
        most: int = 255,
    ) -> tuple[str, ...]:
        """Read a list of texts that `valid` accepts. Other texts are errors and are left out. The parameters are those
        of `checked`."""
        return tuple(text for _, text in self.numbered_texts(name, valid, what, hint, required=required, most=most))

    def numbered_texts(
        self,
        name: str,
        valid: Callable[[str], bool],
        what: str,
        hint: str = "",
        *,
        required: bool = False,
        most: int = 255,
    ) -> list[tuple[int, str]]:
        """Read a list of texts like `checked_texts`, and return each text with its index in the list, so that the
        caller can report further errors at that index."""
        texts = []
        for index, value in enumerate(self._list(name, required=required)):
            text = self._text((name, index), value, most)
            if text == value and not valid(text):
                self.error((name, index), f"`{text[:80]}` is not {what}", hint)
            elif text == value:
                texts.append((index, text))
        return texts

    def host(self, name: str, *, required: bool = False) -> str:
        hint = _host_hint(str(self.raw(name)))
        return self.checked(name, is_host, "a host name", hint, required=required)

    def address(self, name: str) -> str:
        return self.checked(name, is_address, "an IP address", most=64)

    def ranges(self, name: str) -> tuple[str, ...]:
        """Read a list of IP addresses and CIDR ranges."""
        return self.checked_texts(name, is_range, "an IP address or CIDR range", "for example 10.0.0.0/8", most=4_096)

    def regex(self, name: str, *, required: bool = False) -> str:
        value = self.text(name, required=required)
        flaw = regex_flaw(value) if self.has(name) else ""
        if not flaw:
            return value
        what, hint = f"`{value[:80]}` is not a regular expression: {flaw}", "https://github.com/google/re2/wiki/Syntax"
        self.error(name, what, f"Envoy uses RE2: {hint}")
        return ""

    def request_text(self, name: str, *, required: bool = False, most: int) -> str:
        """Read a path or an authority of at most `most` characters. A space or control character in it is an error: a
        line break would make Envoy reject every route of the port, and any other such character would make the request
        invalid for every server."""
        value = self.text(name, required=required, most=most)
        if any(character <= " " or character == "\x7f" for character in value):
            self.error(name, f"`{name}` contains a space or a control character", "percent-encode it: a space is %20")
        return value

    def header(self, name: str) -> str:
        return self.checked(name, is_header, "a header name", most=256)

    def one_of(self, *names: str) -> str:
        """Return which of these fields is set, "" for none. More than one is an error."""
        there = [name for name in names if self.has(name)]
        if len(there) > 1:
            self.error(there[1], f"only one of {quoted(there)} may be set")
        return there[0] if there else ""

    def ignored(self, *names: str) -> None:
        """Mark fields as known, so that they are not reported as unknown: they are valid, but have no effect on a
        mesh."""
        self._known.update(names)

    def told_elsewhere(self, *names: str) -> None:
        """Mark fields as known, so that they are not reported as unknown: the caller reads or checks them elsewhere
        and reports their errors itself."""
        self._known.update(names)

    def outdented(self, holder: str, names: Iterable[str]) -> bool:
        """Report an error for each of the fields `names` that is written beside the field `holder` but belongs below
        it, because of a wrong indentation. This is checked only if `holder` itself is empty. Return whether there are
        such fields; they are not also reported as unknown."""
        there = [name for name in names if name in self._body] if self.raw(holder) is None else []
        for name in there:
            self._known.add(name)
            self.error(name, f"`{name}` belongs below `{holder}`", f"indent it below `{holder}:`")
        return bool(there)

    def texts_beside(self, name: str) -> list[str]:
        """Return the names of this mapping's unknown fields that have a text as value, except names that look like a
        misspelled `name`. Unknown fields are those that no getter has read so far."""
        texts = [other for other, value in self._body.items() if isinstance(value, str) and other not in self._known]
        return [other for other in texts if not did_you_mean(other[:80], (name,)).startswith("did you")]

    def unsupported(self, *names: str) -> None:
        """Warn about fields of Istio or Kubernetes that weft ignores. The object is accepted."""
        for name in names:
            if self.has(name):
                self.warning(name, f"`{name}` is ignored by this version of weft")

    def refused(self, name: str, what: str, hint: str = "") -> None:
        """Report the error `what` if the field `name` is set. For fields that weft does not support and must not
        ignore: without their effect, the mesh would be less secure than configured."""
        if self.has(name):
            self.error(name, what, hint)

    def also_called(self, synonyms: Mapping[str, str]) -> None:
        """Add names that other tools, such as Kubernetes, have for weft's fields: `synonyms` maps them to weft's
        names. They are used only in hints for unknown fields."""
        self._synonyms.update(synonyms)

    def report_unknown(self) -> None:
        for name in self._body:
            if name not in self._known:
                self.error(str(name), f"unknown field `{str(name)[:80]}`", self._meant(str(name)))

    def is_misspelled(self, name: str) -> bool:
        """Whether one of the unknown fields is probably the field `name`, misspelled. Call it only after all fields
        have been read: before, it is not known which fields are unknown."""
        hints = (f"did you mean `{name}`", f"weft calls it `{name}`")
        return any(written not in self._known and self._meant(str(written)).startswith(hints) for written in self._body)

    def _meant(self, name: str) -> str:
        if name in self._synonyms:
            return f"weft calls it `{self._synonyms[name]}`"
        head, *tail = name.split("_")
        camel = head + "".join(part.title() for part in tail)
        if tail and camel in self._known:
            return f"did you mean `{camel}`? field names are in camelCase"
        return did_you_mean(name[:80], self._known)

    def _unquoted(self, value: Any) -> Any:
        """If `value` is a whole number in quotes, in an object of Istio, return the number: protobuf JSON allows this
        form. Return any other value unchanged."""
        quoted_number = isinstance(value, str) and _WHOLE.fullmatch(value)
        return int(value) if quoted_number and self.report.document.is_protobuf else value

    def _value(self, name: str, *, required: bool = False) -> Any:
        value = self.raw(name)
        if value is None and required:
            self.lacks(name, at=name if name in self._body else (), what=f"`{name}` is required")
        return value

    def _list(self, name: str, *, required: bool = False) -> Sequence[Any]:
        value = self._value(name, required=required)
        if value is None:
            return ()
        if not isinstance(value, (list, tuple)):
            self.error(name, f"`{name}` must be a list, not {describe(value)}", "begin each item with `- `")
            return ()
        if self._too_many(name, value):
            return ()
        if required and not value:
            self.error(name, f"`{name}` must not be empty")
        return value

    def _fields(self, below: Path, value: Any) -> Fields | None:
        if isinstance(value, (dict, Mapping)):
            if self._too_many(below, value):
                return None
            return Fields(self.report, (*self.path, *below), value)
        named = f"`{below[0]}`" if len(below) == 1 else f"an item of `{below[0]}`"
        self.error(below, f"{named} must be a mapping, not {describe(value)}")
        return None

    def _text(self, below: Path, value: Any, most: int) -> str:
        if not isinstance(value, str):
            quote = not isinstance(value, (list, dict)) and value is not None
            hint = f'put it in quotes: "{_written(value)}"' if quote else ""
            self.error(below, f"`{_last(below)}` must be text, not {describe(value)}", hint)
            return ""
        if len(value) > most:
            self.error(below, f"`{_last(below)}` is longer than {most} characters")
            return ""
        if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
            self.error(below, f"`{_last(below)}` contains a character that is not allowed in text")
            return ""
        return value

    def _too_many(self, name: str | Path, value: Mapping[str, Any] | Sequence[Any]) -> bool:
        if len(value) <= MOST_ITEMS:
            return False
        self.error(name, f"the field has more than {MOST_ITEMS} items")
        return True

    def _at(self, name: str | Path) -> Path:
        return (*self.path, name) if isinstance(name, str) else (*self.path, *name)


def root_of(report: DocumentReport) -> Fields:
    """Return the cursor at the root mapping of the document that `report` is about."""
    return Fields(report, (), report.document.body)


def describe(value: Any) -> str:
    """Return a short description of a value, for a message."""
    if isinstance(value, bool):
        return _written(value)
    if isinstance(value, (int, float)):
        return f"the number {_written(value)}"
    if isinstance(value, str):
        return f'"{value[:40]}…"' if len(value) > 40 else f'"{value}"'
    return "nothing" if value is None else "a list" if isinstance(value, (list, tuple)) else "a mapping"


def _written(value: Any) -> str:
    """Return `value`, a number or a boolean, as it is written in YAML. Very large numbers are not shown: Python refuses
    to convert some of them to text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)) and not abs(value) < 1e15:
        return "(NaN)" if _is_nan(value) else "(very large)"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _host_hint(value: str) -> str:
    if value.startswith("*"):
        return "a wildcard is not possible here"
    if "://" in value or "/" in value:
        return "write only the name, without scheme or path"
    return "write the name without the port" if ":" in value else "use letters, digits, - and ."


def _short(duration: timedelta) -> str:
    return f"{duration / MILLISECOND:g}ms"


def _last(path: Path) -> str:
    names = [part for part in path if isinstance(part, str)]
    return f"{names[-1][:80]}" if names else "value"
