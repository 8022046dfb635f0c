"""The list of all current problems. Problems are stored by topic (the object, file or resource that causes them), so
that they disappear with their cause. A new problem is logged once."""

from __future__ import annotations

import logging
from collections.abc import Collection, Hashable, Iterable

from weft.base.problem import Problem, Severity

log = logging.getLogger(__name__)

MOST_PER_TOPIC = 1_000  # a file of garbage must not fill memory


class Problems:
    def __init__(self, *, aloud: bool = True) -> None:
        """`aloud`: whether new problems are logged."""
        self._aloud = aloud
        self._by_topic: dict[Hashable, tuple[Problem, ...]] = {}

    def put(self, topic: Hashable, problems: Iterable[Problem]) -> None:
        """Replace all problems of a topic (an object, a file, a rejected resource); an empty list clears the topic."""
        before = self._by_topic.pop(topic, ())
        after = tuple(problems)[:MOST_PER_TOPIC]
        if after:
            self._by_topic[topic] = after
        for problem in after if self._aloud else ():
            if problem not in before:
                log.log(logging.ERROR if problem.severity is Severity.ERROR else logging.WARNING, "%s", problem)

    def of(self, topic: Hashable) -> tuple[Problem, ...]:
        return self._by_topic.get(topic, ())

    def all(self, without: Collection[Hashable] = ()) -> tuple[Problem, ...]:
        """Return every distinct problem once, in the order of files and lines. `without`: topics to leave out."""
        unique = {p for topic, problems in self._by_topic.items() if topic not in without for p in problems}
        return tuple(sorted(unique, key=lambda p: (p.where.file, p.where.line, str(p))))
