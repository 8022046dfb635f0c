"""The error for a name that several objects have.

weft never guesses which object is meant, because the answer about one object would be wrong for the other. Lookups
raise this error, HTTP pages return it with status 300, and commands exit with status 2, as for any invalid command
line.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.base.problem import Problem, Where

AMBIGUOUS = 300  # HTTP's Multiple Choices
_MOST_NAMED = 3


class Ambiguous(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.what)
        self.problem = problem


def in_several_namespaces(name: str, namespaces: Iterable[str]) -> Ambiguous:
    """Return the error for a name that exists in several namespaces. Its hint lists up to three unambiguous names, as
    NAMESPACE/NAME: the lookups that raise this error accept that form."""
    places = sorted(set(namespaces))
    meant = ", or ".join(f"{place}/{name}" for place in places[:_MOST_NAMED])
    return Ambiguous(
        Problem(Where(), f"`{name}` is in several namespaces: {', '.join(places)}", f"choose one: {meant}")
    )
