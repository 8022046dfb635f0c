"""The objects of a directory over time. Input: contents of files. Output: changes of objects. Pure: `watch.py` reads
files and waits for events.

Rules: an invalid document never removes a valid object. An object is deleted only when the file that held it no longer
has it, and even then in two steps, `apply` and `settle`, so that a half-written file, or an object that moves from one
file to another, deletes nothing. If two files hold the same object, the first by path wins; but an object that would be
rejected does not win over one that would not, unless a good version of it is in force.
Whether an object is valid, and which version of it is in force, is answered by the component that takes it in.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from weft.api.document import Change, Document
from weft.api.parse import Parsed, may_close, parse
from weft.base.problem import Problem, Severity, Where
from weft.files.documents import read_documents
from weft.model.names import ObjectKey

log = logging.getLogger(__name__)


class Unreadable(msgspec.Struct, frozen=True):
    """A file that exists and cannot be read; its previous objects stay."""

    problem: Problem


Content = bytes | Unreadable | None  # None: the file is gone


class _File(msgspec.Struct, frozen=True):
    documents: Mapping[ObjectKey, Document] = {}
    kept: Mapping[ObjectKey, Document] = {}  # from before, in place of what cannot be read now
    problems: tuple[Problem, ...] = ()


class DocumentReader(Protocol):
    """The component that takes documents in, as far as a directory depends on it. Called from the watching thread."""

    def read(self, document: Document) -> Parsed: ...

    def good_file(self, key: ObjectKey) -> str:
        """The file that holds the valid version of an object that is in force; empty if there is none."""


class Directory:
    def __init__(self, root: str = "", shown: str = "", reader: DocumentReader | None = None) -> None:
        """Paths are relative to `root`, an absolute directory, which people are shown as `shown`. Without a `reader`
        nothing is in force, and objects are valid as they are in a mesh with the default domain."""
        self._root, self._shown = root, shown
        self._reader = reader or _Unserved()
        self._files: dict[str, _File] = {}
        self._holders: dict[ObjectKey, set[str]] = {}
        self._live: dict[ObjectKey, Document] = {}
        self._leaving: set[ObjectKey] = set()
        # By file, why each version of an object that stands in several files would be refused: parsing is expensive.
        self._errors: dict[ObjectKey, dict[str, tuple[Document, tuple[Problem, ...]]]] = {}

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
        """Take the new contents of files. Returns objects that are new or different; deletions wait for `settle`."""
        touched: set[ObjectKey] = set()
        for path, content in contents.items():
            before = self._files.pop(path, None) or _File()
            now = None if content is None else self._file(path, content, before)
            if now is not None:
                self._files[path] = now
            touched |= self._index(path, before, now or _File())
        return list(self._compare(touched))

    def settle(self, keys: Iterable[ObjectKey]) -> list[Change]:
        """Delete those of the keys that are still in no file."""
        gone = sorted(self._leaving.intersection(keys))
        self._leaving.difference_update(gone)
        for key in gone:
            del self._live[key]
        return [Change(key, None) for key in gone]

    def problems(self) -> tuple[Problem, ...]:
        """Everything wrong with the files now, in the order of path and line."""
        found = [problem for path in sorted(self._files) for problem in self._files[path].problems]
        for key in sorted(key for key, paths in self._holders.items() if len(paths) > 1):
            found.extend(self._doubles(key))
        return tuple(found)

    def _file(self, path: str, content: bytes | Unreadable, before: _File) -> _File:
        shown = printable(f"{self._shown}/{path}" if self._shown else path)
        # A program that saves in place truncates the file first: its objects are not deleted yet.
        left = {key: self._live[key] for key in self._leaving if self._live[key].file == shown}
        held = {**left, **before.kept, **before.documents}
        if isinstance(content, Unreadable):
            return _File(kept=held, problems=(content.problem,))
        below = path.rpartition("/")[0]
        directory = f"{self._root}/{below}" if self._root and below else self._root
        reading = read_documents(content, shown, printable(directory))
        documents = {document.key: document for document in reading.documents}
        # An object that restricts access must be known even if no version of it was ever valid: it fails closed.
        broken = {document.key: document for document in reading.broken if may_close(document)}
        named = {document.key for document in reading.broken}
        missing = {key: document for key, document in held.items() if key not in documents}
        kept = {key: document for key, document in missing.items() if reading.unidentified or key in named}
        # The unreadable document and the missing object are most probably the same; the object is kept.
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
        for key in old | new:
            if len(self._holders.get(key, ())) < 2:
                self._errors.pop(key, None)
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

    def _winner(self, key: ObjectKey) -> Document | None:
        paths = sorted(self._holders.get(key, ()))
        readable = [self._files[path].documents[key] for path in paths if key in self._files[path].documents]
        if len(readable) > 1:
            good_file = self._reader.good_file(key)
            entitled = (each for each in readable if each.file == good_file or not self._refusals(each))
            return next(entitled, readable[0])
        kept = [self._files[path].kept[key] for path in paths if key in self._files[path].kept]
        return next(iter([*readable, *kept]), None)

    def _doubles(self, key: ObjectKey) -> Iterable[Problem]:
        winner = self._winner(key)
        for path in sorted(self._holders[key]):
            document = self._files[path].documents.get(key)
            if document is None or winner is None or document is winner:
                continue
            yield from self._refusals(document)  # it is never taken in, so its problems are reported only here
            yield Problem(
                Where(file=document.file, line=document.line, object=str(key)),
                f"{key} also stands at {winner.file}:{winner.line}, which holds",
                "remove one of them",
            )

    def _refusals(self, document: Document) -> tuple[Problem, ...]:
        """Why an object that stands in several files would be refused; empty if it would not."""
        known = self._errors.setdefault(document.key, {})
        judged, errors = known.get(document.file, (None, ()))
        if judged is not document:
            errors = self._errors_of(document)
            known[document.file] = (document, errors)
        return errors

    def _errors_of(self, document: Document) -> tuple[Problem, ...]:
        if not document.usable:
            return (Problem(document.where(), "this cannot be read"),)
        try:
            problems = self._reader.read(document).problems
        except Exception:  # a defect in weft, which is reported where the object is taken in; the others must go on
            log.exception("cannot read %s", document.key)
            return ()
        return tuple(problem for problem in problems if problem.severity is Severity.ERROR)


class _Unserved:
    """Reads for commands that look at files once and put nothing into force."""

    def read(self, document: Document) -> Parsed:
        return parse(document)

    def good_file(self, key: ObjectKey) -> str:
        return ""


def printable(path: str) -> str:
    """The path for display: bytes that are not UTF-8 are replaced."""
    return path.encode(errors="surrogateescape").decode(errors="replace")
