"""A name that several have. Nobody guesses which one is meant: what is said of one is wrong of the other. Who looks up
names raises it, a page answers with its status, and a command ends with 2, as on other lines that say too little."""

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
    return Ambiguous(Problem(Where(), f"`{name}` is in several namespaces: {', '.join(places)}", f"say which: {meant}"))
