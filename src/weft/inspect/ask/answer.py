"""The answer to a question about a request: what would happen to it, in a stage that somebody else has chosen, and, if
it is known what is wrong with the mesh, what of that is in its way."""

from __future__ import annotations

from datetime import datetime

import msgspec

from weft.base.problem import Problem
from weft.explain.decision import Explanation
from weft.explain.explain import explain
from weft.explain.request import Request
from weft.explain.text import lines
from weft.inspect.ask.causes import Wrong, clues
from weft.inspect.ask.question import Question, request_in
from weft.inspect.reasons.steps import sourced
from weft.inspect.stage import Stage


class Answer(msgspec.Struct, frozen=True):
    request: Request
    explanation: Explanation
    lines: tuple[str, ...]  # the same, for people
    problems: tuple[Problem, ...] = ()  # what is wrong on its way: of objects that decide about it, or fail to


def answer(stage: Stage, question: Question, now: datetime, wrong: Wrong | None = None) -> Answer:
    """`wrong`: all that is known to be wrong with the mesh; without, nobody looks for what is wrong on the way.
    Raises as `request_in` does."""
    request = request_in(stage, question, now)
    explanation = sourced(stage.mesh, stage.group_of, explain(request, stage))
    found = clues(stage, request, explanation, wrong) if wrong is not None else ()
    return Answer(request, explanation, tuple(lines(explanation)), found)
