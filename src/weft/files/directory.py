"""What a directory of files says, over time. Contents of files come in, changes of objects leave. Pure: reading and
waiting are the watcher's.

Rules: a bad document never removes what was good before. An object goes only when the file that held it shows that
it is gone, and even then in two steps, `apply` and `settle`, so that a file caught half-written, or an object on its
way from one file to another, takes nothing away. Of two files that hold the same object, the first by path wins;
but an object that would be refused takes no place from one that would not, unless a good version of it is in force.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import msgspec

from weft.api.document import Change, Document
from weft.api.parse import may_close, parse
from weft.base.problem import Problem, Severity, Where
from weft.files.documents import read_documents
from weft.model.names import ObjectKey

log = logging.getLogger(__name__)


class Unreadable(msgspec.Struct, frozen=True):
    """A file that is there and cannot be read; what it held before stays."""

    problem: Problem


Content = bytes | Unreadable | None  # None: the file is gone


class _File(msgspec.Struct, frozen=True):
    documents: Mapping[ObjectKey, Document] = {}
    kept: Mapping[ObjectKey, Document] = {}  # from before, in place of what cannot be read now
    problems: tuple[Problem, ...] = ()


class Directory:
    def __init__(self, root: str = "", shown: str = "") -> None:
        """Paths are relative to `root`, an absolute directory, which people are shown as `shown`."""
        self._root, self._shown = root, shown
        self._files: dict[str, _File] = {}
        self._holders: dict[ObjectKey, set[str]] = {}
        self._live: dict[ObjectKey, Document] = {}
        self._leaving: set[ObjectKey] = set()
        # Which file a good version came from, known only of objects that were changed or stand twice: it costs a parse.
        self._good_from: dict[ObjectKey, str] = {}

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(self._files)

    @property
    def live(self) -> Mapping[ObjectKey, Document]:
        return self._live

    @property
    def leaving(self) -> frozenset[ObjectKey]:
        """Objects that are in no file any more and wait for `settle`."""
        return frozenset(self._leaving)

    def apply(self, contents: Mapping[str, Content]) -> list[Change]:
        """Files are now this. Returns what is new or different; what seems gone waits for `settle`."""
        touched: set[ObjectKey] = set()
        for path, content in contents.items():
            before = self._files.pop(path, None) or _File()
            now = None if content is None else self._file(path, content, before)
            if now is not None:
                self._files[path] = now
            touched |= self._index(path, before, now or _File())
        return list(self._compare(touched))

    def settle(self, keys: Iterable[ObjectKey]) -> list[Change]:
        """Those of the keys that still are in no file are gone."""
        gone = sorted(self._leaving.intersection(keys))
        self._leaving.difference_update(gone)
        for key in gone:
            del self._live[key]
            self._good_from.pop(key, None)
        return [Change(key, None) for key in gone]

    def problems(self) -> tuple[Problem, ...]:
        """Everything wrong with the files now, in the order of path and line."""
        found = [problem for path in sorted(self._files) for problem in self._files[path].problems]
        for key in sorted(key for key, paths in self._holders.items() if len(paths) > 1):
            found.extend(self._doubles(key))
        return tuple(found)

    def _file(self, path: str, content: bytes | Unreadable, before: _File) -> _File:
        shown = printable(f"{self._shown}/{path}" if self._shown else path)
        # Who saves in place empties the file first: what it held until then has not left yet.
        left = {key: self._live[key] for key in self._leaving if self._live[key].file == shown}
        held = {**left, **before.kept, **before.documents}
        if isinstance(content, Unreadable):
            return _File(kept=held, problems=(content.problem,))
        below = path.rpartition("/")[0]
        directory = f"{self._root}/{below}" if self._root and below else self._root
        reading = read_documents(content, shown, printable(directory))
        documents = {document.key: document for document in reading.documents}
        # One that keeps others out must be known of, even if nothing of it was ever good.
        broken = {document.key: document for document in reading.broken if may_close(document)}
        named = {document.key for document in reading.broken}
        missing = {key: document for key, document in held.items() if key not in documents}
        kept = {key: document for key, document in missing.items() if reading.unidentified or key in named}
        # What is not readable any more and what is missing are one and the same, most probably, and that one is kept.
        new = (each for each in reading.guessed if all(each.key.kind != key.kind for key in missing))
        guessed = {document.key: document for document in new if document.key not in documents}
        kept = guessed | broken | kept
        return _File(documents, kept, reading.problems)

    def _index(self, path: str, before: _File, now: _File) -> set[ObjectKey]:
        old, new = {*before.documents, *before.kept}, {*now.documents, *now.kept}
        for key in old - new:
            self._holders[key].discard(path)
            if not self._holders[key]:
                del self._holders[key]
        for key in new - old:
            self._holders.setdefault(key, set()).add(path)
        return old | new

    def _compare(self, touched: Iterable[ObjectKey]) -> Iterable[Change]:
        for key in sorted(touched):
            document = self._winner(key)
            if document is None:
                if key in self._live:
                    self._leaving.add(key)
                continue
            self._leaving.discard(key)
            before = self._live.get(key)
            if before != document:
                self._live[key] = document
                yield Change(key, document)
            if before is not None or len(self._holders[key]) > 1:
                for version in (before, document):
                    if version is not None and not refusals(version):
                        self._good_from[key] = version.file

    def _winner(self, key: ObjectKey) -> Document | None:
        paths = sorted(self._holders.get(key, ()))
        readable = [self._files[path].documents[key] for path in paths if key in self._files[path].documents]
        if len(readable) > 1:
            live = self._live.get(key)
            good_from = self._good_from.get(key, live.file if live is not None and not refusals(live) else "")
            entitled = (each for each in readable if each.file == good_from or not refusals(each))
            return next(entitled, readable[0])
        kept = [self._files[path].kept[key] for path in paths if key in self._files[path].kept]
        return next(iter([*readable, *kept]), None)

    def _doubles(self, key: ObjectKey) -> Iterable[Problem]:
        winner = self._winner(key)
        for path in sorted(self._holders[key]):
            document = self._files[path].documents.get(key)
            if document is None or winner is None or document is winner:
                continue
            yield from refusals(document)  # nobody else looks at it
            yield Problem(
                Where(file=document.file, line=document.line, object=str(key)),
                f"{key} also stands at {winner.file}:{winner.line}, which holds",
                "remove one of them",
            )


def refusals(document: Document) -> tuple[Problem, ...]:
    """Why an object would be refused; nothing if it would not."""
    if not document.usable:
        return (Problem(document.where(), "this cannot be read"),)
    try:
        problems = parse(document).problems
    except Exception:  # a defect of ours, which whoever takes the object in reports; here it must not stop the others
        log.exception("cannot read %s", document.key)
        return ()
    return tuple(problem for problem in problems if problem.severity is Severity.ERROR)


def printable(path: str) -> str:
    """A name that is not UTF-8 can be opened, but not shown."""
    return path.encode(errors="surrogateescape").decode(errors="replace")
