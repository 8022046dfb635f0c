"""Adds line numbers to the problems of a running mesh. The line numbers of fields are not kept in memory: the files
that have a problem are read again.

Rule: this module reads files, so it must not run on the event loop that serves proxies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from weft.api.document import Document, undotted
from weft.base.problem import Problem
from weft.files.documents import read_documents

MOST_READ = 1 << 20  # bytes; in a larger file, a problem is shown at the first line of its object


def with_lines(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems with the line number of their field. Never raises: problems of a file that cannot be read
    are returned unchanged."""
    listed = tuple(problems)
    return located(listed, _written({problem.where.file for problem in listed if problem.where.field}))


def located(problems: Iterable[Problem], documents: Iterable[Document]) -> tuple[Problem, ...]:
    """Return the problems with the line number of their field, as far as `documents` contain it. If a problem
    already has a line, which may be the first line of its object, the larger of the two numbers is used."""
    by_object = {str(document.key): document for document in documents if document.lines}
    result = []
    for problem in problems:
        where = problem.where
        document = by_object.get(where.object) if where.field else None
        if document is not None and where.file == document.file:
            line = max(where.line, document.where(undotted(where.field)).line)
            if line != where.line:
                problem = msgspec.structs.replace(problem, where=msgspec.structs.replace(where, line=line))
        result.append(problem)
    return tuple(result)


def _written(files: set[str]) -> Iterator[Document]:
    for file in sorted(files - {""}):
        path = Path(file)
        try:
            if path.stat().st_size <= MOST_READ:
                yield from read_documents(path.read_bytes(), file).documents
        except OSError:
            continue
