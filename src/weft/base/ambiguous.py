"""The error for a name that several objects have. weft never guesses which one is meant, because the answer for one
would be wrong for the other. Lookups raise it, a page returns it with its status, and a command exits with 2, as for
other incomplete command lines."""

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
    """The hint has the names to give instead, in the one form that every command takes."""
    places = sorted(set(namespaces))
    meant = ", or ".join(f"{place}/{name}" for place in places[:_MOST_NAMED])
    return Ambiguous(
        Problem(Where(), f"`{name}` is in several namespaces: {', '.join(places)}", f"choose one: {meant}")
    )
