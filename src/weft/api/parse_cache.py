"""Documents that several look at are read once. Whoever needs a mesh before and after a change, and what is wrong with
it, makes one of these and gives it to all of them: documents come in, what they say leaves."""

from __future__ import annotations

from weft.api.document import Document
from weft.api.parse import Parsed, parse


class Reading:
    """`parse`, that remembers. A document is known as itself: its content may not change, and is not compared."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], tuple[Document, Parsed]] = {}  # held, so that no other gets its id

    def __call__(self, document: Document, domain: str = "cluster.local") -> Parsed:
        key = (id(document), domain)
        if key not in self._known:
            self._known[key] = (document, parse(document, domain))
        return self._known[key][1]
