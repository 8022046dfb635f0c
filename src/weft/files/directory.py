"""Tracks the objects in a directory's files. Input: contents of files. Output: changes of objects. This module does
no I/O: `watch.py` reads the files and waits for events.

Rules: an invalid document never removes a valid object. An object is deleted only when the file that contained it no
longer does, and even then in two steps, `apply` and `settle`. So a half-written file, or an object that moves from
one file to another, deletes nothing.

If several files contain the same object, the first file decides, in the order of their paths. A file is skipped if its
version of the object would be rejected and another file has a version that would be accepted. Exception: a file is not
skipped if the mesh uses a valid version of the object that was read from this file earlier. The `reader` decides
whether a version is valid and knows which version is in use.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from weft.api.document import Change, Document
from weft.api.parse import Parsed, may_close, parse
from weft.base.problem import Problem, Severity, Where
from weft.files.documents import is_foreign_json, read_documents
from weft.model.names import ObjectKey

log = logging.getLogger(__name__)


class Unreadable(msgspec.Struct, frozen=True):
    """A file that exists but cannot be read, for the reason `problem`. The objects that were read from the file before
    stay in the mesh."""

    problem: Problem


Content = bytes | Unreadable | None  # None: the file was deleted


class _File(msgspec.Struct, frozen=True):
    documents: Mapping[ObjectKey, Document] = {}
    kept: Mapping[ObjectKey, Document] = {}  # earlier versions of objects that cannot be read now
    problems: tuple[Problem, ...] = ()


class DocumentReader(Protocol):
    """The component that receives the documents of a directory, such as a control plane. `read` parses a document.
    The methods are called from the watching thread."""

    def read(self, document: Document) -> Parsed: ...

    def good_file(self, key: ObjectKey) -> str:
        """Return the file that contained the version of the object which the mesh uses now; "" if the mesh uses no
        valid version."""


class Directory:
    def __init__(self, root: str = "", shown: str = "", reader: DocumentReader | None = None) -> None:
        """`root` is the absolute directory to which all paths are relative; messages show it as `shown`. Without a
        `reader`, no version is in use, and validity is decided as in a mesh with the default domain."""
        self._root, self._shown = root, shown
        self._reader = reader or _Unserved()
        self._files: dict[str, _File] = {}
        self._holders: dict[ObjectKey, set[str]] = {}
        self._live: dict[ObjectKey, Document] = {}
        self._leaving: set[ObjectKey] = set()
        # For objects that are in several files: by file, why that version would be rejected. A cache, as parsing is
        # expensive.
        self._errors: dict[ObjectKey, dict[str, tuple[Document, tuple[Problem, ...]]]] = {}

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(self._files)

    @property
    def live(self) -> Mapping[ObjectKey, Document]:
        return self._live

    @property
    def leaving(self) -> frozenset[ObjectKey]:
        """Objects that are in no file any more and will be deleted by `settle`."""
        return frozenset(self._leaving)

    @property
    def kept(self) -> frozenset[ObjectKey]:
        """Objects that keep an earlier version, because no file contains a readable version any more."""
        kept = (key for file in self._files.values() for key in file.kept)
        return frozenset(
            key for key in kept if not any(key in self._files[path].documents for path in self._holders.get(key, ()))
        )

    def apply(self, contents: Mapping[str, Content]) -> list[Change]:
        """Process the new contents of files, by path. Return a change for each object that is new or different;
        objects that are in no file any more are deleted only by `settle`."""
        touched: set[ObjectKey] = set()
        for path, content in contents.items():
            before = self._files.pop(path, None) or _File()
            now = None if content is None else self._file(path, content, before)
            if now is not None:
                self._files[path] = now
            touched |= self._index(path, before, now or _File())
        return list(self._compare(touched))

    def settle(self, keys: Iterable[ObjectKey]) -> list[Change]:
        """Delete those objects of `keys` that are still in no file. Return a change for each deleted object."""
        deleted = sorted(self._leaving.intersection(keys))
        self._leaving.difference_update(deleted)
        for key in deleted:
            del self._live[key]
        return [Change(key, None) for key in deleted]

    def problems(self) -> tuple[Problem, ...]:
        """Return everything that is wrong with the files now: first the problems of each file, by path and line, then
        those of objects that several files contain."""
        problems = [problem for path in sorted(self._files) for problem in self._files[path].problems]
        for key in sorted(key for key, paths in self._holders.items() if len(paths) > 1):
            problems.extend(self._doubles(key))
        return tuple(problems)

    def _file(self, path: str, content: bytes | Unreadable, before: _File) -> _File:
        shown = printable(f"{self._shown}/{path}" if self._shown else path)
        # A program that saves in place truncates the file first: the objects of that file are not deleted yet.
        left = {key: self._live[key] for key in self._leaving if self._live[key].file == shown}
        previous = {**left, **before.kept, **before.documents}
        if isinstance(content, Unreadable):
            return _File(kept=previous, problems=(content.problem,))
        if self._root and not previous and is_foreign_json(content, path):
            return _File()
        below = path.rpartition("/")[0]
        directory = f"{self._root}/{below}" if self._root and below else self._root
        reading = read_documents(content, shown, printable(directory))
        documents = {document.key: document for document in reading.documents}
        # A policy that restricts access must be known even if no version of it was ever valid: it fails closed.
        broken = {document.key: document for document in reading.broken if may_close(document)}
        named = {document.key for document in reading.broken}
        missing = {key: document for key, document in previous.items() if key not in documents}
        kept = {key: document for key, document in missing.items() if reading.unidentified or key in named}
        # A document that cannot be parsed is most probably the missing object of the same kind, so that object is kept.
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
            yield from self._refusals(document)  # not passed to the reader: its problems are reported only here
            place = f"{winner.file}:{winner.line}"
            yield Problem(
                Where(file=document.file, line=document.line, object=str(key)),
                f"{key} is also defined at {place}; that definition is used",
                f"to replace that definition by this one, remove it from {winner.file}",
            )

    def _refusals(self, document: Document) -> tuple[Problem, ...]:
        """Return the errors for which this version of an object would be rejected; empty if it would be accepted.
        Used for objects that several files contain."""
        cache = self._errors.setdefault(document.key, {})
        judged, errors = cache.get(document.file, (None, ()))
        if judged is not document:
            errors = self._errors_of(document)
            cache[document.file] = (document, errors)
        return errors

    def _errors_of(self, document: Document) -> tuple[Problem, ...]:
        if not document.usable:
            return (Problem(document.where(), "the document cannot be parsed"),)
        try:
            problems = self._reader.read(document).problems
        except Exception:  # an error in weft, reported when the object is read; the other objects must be processed
            log.exception("cannot read %s", document.key)
            return ()
        return tuple(problem for problem in problems if problem.severity is Severity.ERROR)


class _Unserved:
    """The reader for commands that read files once, without a running mesh."""

    def read(self, document: Document) -> Parsed:
        return parse(document)

    def good_file(self, key: ObjectKey) -> str:
        return ""


def printable(path: str) -> str:
    """Return a path for display, in which bytes that are not UTF-8 are replaced."""
    return path.encode(errors="surrogateescape").decode(errors="replace")
