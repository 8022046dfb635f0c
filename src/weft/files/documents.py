"""Splits the bytes of one file into documents and problems. Each document has the line numbers of its fields.

Rule: an invalid document affects no other document. The result also states which objects an invalid document may
define: the objects that it names (`broken`), or, if no name can be read from it, possibly any object (`unidentified`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

import msgspec

from weft.api.document import Document
from weft.api.kinds import key_kind
from weft.api.parse import CLUSTER_SCOPED, KINDS
from weft.api.yaml_text import Composed, Path, TextFlaw, YamlError, compose
from weft.base.problem import Problem, Severity, Where
from weft.base.suggest import did_you_mean
from weft.model.names import ObjectKey

MOST_BYTES = 8 << 20
MOST_DOCUMENTS = 10_000

_MARKER = re.compile(r"^(---|\.\.\.)(?=[ \t\r\n]|$)", re.MULTILINE)
_WRITTEN = re.compile(
    r"""(?:^|[{,])[ \t]*["']?(kind|name|namespace)["']?[ \t]*:[ \t]*["']?([\w.-]{1,253})""", re.MULTILINE
)
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
# An escaped half of a surrogate pair that is not followed, or not preceded, by the other half.
_HALF = re.compile(r"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]")
_RIGHTLY_THERE = ("apiVersion", "kind", "metadata", "spec", "name", "namespace", "labels", "annotations")


class FileReading(msgspec.Struct, frozen=True):
    documents: tuple[Document, ...] = ()
    problems: tuple[Problem, ...] = ()
    broken: tuple[Document, ...] = ()  # objects that the file names but that cannot be parsed
    unidentified: bool = False  # a part of the file may be any object
    guessed: tuple[Document, ...] = ()  # the access-restricting objects that such a part seems to be


def read_documents(content: bytes, file: str, directory: str = "") -> FileReading:
    """Split `content`, the content of a file, into documents and problems. Never raises. `file`: the file's path for
    messages. `directory`: the directory to which paths in the documents are relative."""
    reading = _Reading(file, directory)
    if len(content) > MOST_BYTES:
        return reading.broken_file(TextFlaw(1, f"the file is larger than {MOST_BYTES >> 20} MiB", "split it"))
    try:
        text = _decode(content)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        return reading.broken_file(TextFlaw(line, "this is not UTF-8 text", "save the file as UTF-8"))
    if PurePath(file).suffix == ".json":
        reading.json(text)
    else:
        for number, (line, part) in enumerate(_split(text)):
            if number == MOST_DOCUMENTS:
                reading.add_flaw(TextFlaw(line, f"more than {MOST_DOCUMENTS} documents in one file", "split it"))
                reading.unidentified = True
                break
            reading.yaml(part, line)
    return reading.result()


def is_foreign_json(content: bytes, file: str) -> bool:
    """Return whether a file is JSON of another tool, such as package.json: it has neither `apiVersion` nor `kind`."""
    if PurePath(file).suffix != ".json" or b'"apiVersion"' in content or content.startswith(_UTF_16):
        return False
    if b'"kind"' not in content:
        return True
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return False  # it may be an object that is only half written
    return not isinstance(value, dict) or "kind" not in value


class _Reading:
    def __init__(self, file: str, directory: str) -> None:
        self._file, self._directory = file, directory
        self._documents: dict[ObjectKey, Document] = {}
        self._problems: list[Problem] = []
        self._broken: dict[ObjectKey, Document] = {}
        self._guessed: dict[ObjectKey, Document] = {}
        self.unidentified = False

    def result(self) -> FileReading:
        documents = tuple(self._documents.values())
        broken = tuple(document for key, document in self._broken.items() if key not in self._documents)
        problems = tuple(sorted(self._problems, key=lambda problem: problem.where.line))
        return FileReading(documents, problems, broken, self.unidentified, tuple(self._guessed.values()))

    def broken_file(self, flaw: TextFlaw) -> FileReading:
        self.add_flaw(flaw)
        self.unidentified = True
        return self.result()

    def yaml(self, text: str, line: int) -> None:
        try:
            composed = compose(text, line)
        except YamlError as error:
            self.add_flaw(error.flaw)
            self.unidentified = True
            self._guess(text, line)
            return
        if composed.value is not None:
            self._objects(composed)

    def json(self, text: str) -> None:
        if not text.strip():
            return
        try:
            value = json.loads(text)
            if half := _HALF.search(text):
                json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            line = text.count("\n", 0, half.start() if half else 0) + 1
            what = "this is not Unicode text: it contains half of a surrogate pair"
            self.broken_file(TextFlaw(line, what, "write the character itself, or both halves, such as \\ud83d\\ude00"))
            return
        except (ValueError, RecursionError) as error:
            line = getattr(error, "lineno", 1)
            self.add_flaw(TextFlaw(line, f"this is not JSON: {getattr(error, 'msg', error)}"))
            self.unidentified = True
            self._guess(text, 1)
            return
        try:
            composed = compose(text)  # JSON is almost YAML; this parse finds the line numbers
        except YamlError as error:
            if error.flaw.what.startswith(("nested", "more than")):
                self.broken_file(error.flaw)
                return
            composed = Composed(value=value, line=1, lines={})
        self._objects(composed)

    def _guess(self, text: str, line: int) -> None:
        """If a document cannot be parsed, guess from its text which object it is, and record the object if it is a
        policy that restricts access. Reason: such a policy with a missing bracket must still deny access."""
        fields = dict(reversed(_WRITTEN.findall(text)))  # the first match of each field
        kind, name = fields.get("kind", ""), fields.get("name", "")
        if not name or kind not in KINDS or KINDS[kind].closed is None:
            return
        key = ObjectKey(kind, fields.get("namespace", "default"), name)
        body = {"kind": kind, "metadata": {"name": key.name, "namespace": key.namespace}}
        self._guessed[key] = Document(
            key, KINDS[kind].versions[0], body, self._file, self._directory, line, usable=False
        )

    def _objects(self, composed: Composed) -> None:
        wrong = any(flaw.severity is Severity.ERROR for flaw in composed.flaws)
        keys = []
        for value, lines, line in _expand(composed):
            keys.append(self._object(value, lines, line, usable=not wrong))
        named = str(keys[0]) if len(keys) == 1 and keys[0] else ""
        for flaw in composed.flaws:
            self.add_flaw(flaw, named)

    def _object(self, value: Any, lines: Mapping[Path, int], line: int, *, usable: bool) -> ObjectKey | None:
        if not isinstance(value, Mapping):
            self.add_flaw(TextFlaw(line, "this is not an object", "an object has `apiVersion`, `kind` and `metadata`"))
            self.unidentified = True
            return None
        key = self._key(value, lines, line)
        if key is None:
            self.unidentified = True
            return None
        document = Document(key, value["apiVersion"], value, self._file, self._directory, line, lines, usable)
        if not usable:
            self._broken[key] = document
        elif key in self._documents:
            first = self._documents[key].line
            self.add_flaw(
                TextFlaw(line, f"{key} is defined twice in this file; the one on line {first} is used", "remove one"),
                str(key),
            )
        else:
            self._documents[key] = document
        return key

    def _key(self, value: Mapping[str, Any], lines: Mapping[Path, int], line: int) -> ObjectKey | None:
        """Return the key of the object `value`. If a field of the key is missing or invalid, add a problem for each
        such field and return None. `lines`: the line of each field. `line`: that of the object."""
        kind, metadata = value.get("kind"), value.get("metadata")
        before = len(self._problems)
        for name in ("apiVersion", "kind"):
            self._text(value.get(name), name, (name,), value, lines, line)
        if not isinstance(metadata, Mapping):
            what = "`metadata` must be a mapping" if metadata is not None else "`metadata` is missing"
            hint = "write `metadata: {name: …}`" if "metadata" in value else _meant("metadata", value)
            self.add_flaw(TextFlaw(lines.get(("metadata",), line), what, hint), str(kind or ""))
            return None
        self._text(metadata.get("name"), "metadata.name", ("metadata", "name"), metadata, lines, line)
        namespace = metadata.get("namespace")
        if namespace is not None and not isinstance(namespace, str):
            at = lines.get(("metadata", "namespace"), line)
            self.add_flaw(TextFlaw(at, "`metadata.namespace` must be text", f'put it in quotes: "{namespace}"'))
        if len(self._problems) > before:
            return None
        scoped = kind in CLUSTER_SCOPED or (kind in KINDS and not KINDS[str(kind)].namespaced)
        kind = key_kind(str(value["apiVersion"]), str(kind))
        return ObjectKey(kind, "" if scoped else namespace or "default", str(metadata["name"]))

    def _text(
        self, value: Any, name: str, path: Path, holder: Mapping[str, Any], lines: Mapping[Path, int], line: int
    ) -> None:
        if isinstance(value, str) and value and len(value) <= 253:
            return
        at = next((lines[path[:end]] for end in (len(path), 1) if path[:end] in lines), line)
        if value is None or value == "":
            self.add_flaw(TextFlaw(at, f"`{name}` is missing", _meant(str(path[-1]), holder)))
        elif isinstance(value, str):
            self.add_flaw(TextFlaw(at, f"`{name}` is longer than 253 characters"))
        else:
            quotable = isinstance(value, (int, float, bool))
            self.add_flaw(TextFlaw(at, f"`{name}` must be text", f'put it in quotes: "{value}"' if quotable else ""))

    def add_flaw(self, flaw: TextFlaw, named: str = "") -> None:
        if len(self._problems) < 1_000:
            where = Where(file=self._file, line=flaw.line, object=named[:600])
            self._problems.append(Problem(where, flaw.what, flaw.hint, flaw.severity))


def _split(text: str) -> Iterator[tuple[int, str]]:
    """Yield (first line, text) for each document of a YAML stream. Documents of only blank lines, comments and
    directives are left out. A line that begins with `---` or `...` ends a document wherever it occurs, so splitting
    works even if the YAML is invalid."""
    # `---` belongs to the document after it, `...` to the document before it.
    starts = [0, *(marker.start() if marker.group() == "---" else marker.end() for marker in _MARKER.finditer(text))]
    line, last = 1, 0
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        line += text.count("\n", last, start)
        last = start
        part = text[start:end]
        if not all(row.strip() == "" or row.lstrip().startswith(("#", "%")) for row in part.splitlines()):
            yield line, part


def _expand(composed: Composed) -> Iterator[tuple[Any, Mapping[Path, int], int]]:
    """Yield a tuple for each object of the document `composed`: the object, the line numbers of its fields, and its
    first line. The objects are the document itself, or the items of a `List`."""
    value = composed.value
    listing = isinstance(value, Mapping) and str(value.get("kind", "")).endswith("List")
    if not listing or not isinstance(value.get("items"), list):
        yield value, composed.lines, composed.line
        return
    by_item: dict[int, dict[Path, int]] = {}
    for path, line in composed.lines.items():
        if len(path) >= 2 and path[0] == "items" and isinstance(path[1], int):
            by_item.setdefault(path[1], {})[path[2:]] = line
    for index, item in enumerate(value["items"]):
        lines = by_item.get(index, {})
        yield item, lines, lines.get((), composed.line)


def _meant(name: str, holder: Mapping[str, Any]) -> str:
    for field in holder:
        if str(field) not in _RIGHTLY_THERE and did_you_mean(str(field), [name]).startswith("did you"):
            return f"did you mean `{name}` instead of `{field}`?"
    examples = {"apiVersion": "for example networking.istio.io/v1", "kind": "for example VirtualService"}
    return examples.get(name, "every object needs this field")


def _decode(content: bytes) -> str:
    text = content.decode("utf-16" if content.startswith(_UTF_16) else "utf-8-sig")
    return text.replace("\r\n", "\n").replace("\r", "\n")
