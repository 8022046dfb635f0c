"""Persists the history across restarts of a control plane: parses the objects in the journal into values, and appends
each new moment to the journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from weft.api.parse import parse
from weft.history.history import Edit, History, Moment
from weft.history.journal import Journal, Said, SaidMoment
from weft.history.journal_lock import JournalLock
from weft.history.object_texts import Contents, document_of
from weft.model.names import ObjectKey
from weft.model.value import Admit, Value, as_it_is


class Memory:
    def __init__(self, directory: Path, *, domain: str = "cluster.local", admit: Admit = as_it_is) -> None:
        """`directory` contains the journal and must be accessible only to its owner. `domain` is the mesh's DNS
        domain. `admit` assigns addresses to past services that have none. Raises JournalTaken if another process
        writes to that journal."""
        self._lock = JournalLock(directory)
        self._journal = Journal(directory)
        self._domain, self._admit = domain, admit

    def begin(self, history: History, contents: Contents) -> None:
        """Add the moments of earlier runs to `history`, and start the journal of this run with the current objects
        `contents`. Must be called once, when the first objects are loaded."""
        contents.forget_changes()
        restored = self._journal.begin(contents.all_said(), history.begun, contents.digest())
        moments = [Moment(each.number, each.at, tuple(self._edits(each)), each.digest) for each in restored.moments]
        history.restore(restored.begun, moments, restored.digest)

    def add(self, moment: Moment | None, contents: Contents) -> None:
        edits = contents.changes()
        if moment is not None and edits:
            self._journal.add(SaidMoment(moment.number, moment.at, moment.digest, edits))

    def close(self) -> None:
        self._journal.close()
        self._lock.close()

    def _edits(self, moment: SaidMoment) -> Iterator[Edit]:
        for edit in moment.edits:
            yield Edit(edit.key, self._values(edit.key, edit.before), self._values(edit.key, edit.after))

    def _values(self, key: ObjectKey, content: Said | None) -> tuple[Value, ...]:
        document = document_of(key, content) if content is not None else None
        if document is None:
            return ()
        parsed = parse(document, self._domain)
        return tuple(self._admit(value) for value in parsed.values or parsed.closed)
