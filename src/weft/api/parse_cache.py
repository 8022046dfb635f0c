"""Parses each document only once. A command that needs a mesh before and after a change creates one `Reading` and
passes it to all functions that parse documents."""

from __future__ import annotations

from weft.api.document import Document
from weft.api.parse import Parsed, parse


class Reading:
    """The function `parse` with a cache. Documents are compared by identity, so their content must not change."""

    def __init__(self) -> None:
        self._known: dict[
            tuple[int, str], tuple[Document, Parsed]
        ] = {}  # the document is kept, so that its id is not reused

    def __call__(self, document: Document, domain: str = "cluster.local") -> Parsed:
        key = (id(document), domain)
        if key not in self._known:
            self._known[key] = (document, parse(document, domain))
        return self._known[key][1]
