"""Explain a request: predict its outcome in a given stage (the mesh now, or at a past moment), and, if the mesh's
problems are passed in, list the problems that affect the request."""

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
    lines: tuple[str, ...]  # the explanation as text
    problems: tuple[Problem, ...] = ()  # problems of the objects that decide about the request, and other likely causes


def answer(stage: Stage, question: Question, now: datetime, wrong: Wrong | None = None) -> Answer:
    """Return the explanation of the request in `question`, as it would go in this `stage`. `now`: the time with which
    tokens are checked. `wrong`: all known problems of the mesh; without it, `Answer.problems` is empty. Raises the
    exceptions of `request_in`."""
    request = request_in(stage, question, now)
    explanation = sourced(stage.mesh, stage.group_of, explain(request, stage))
    causes = clues(stage, request, explanation, wrong) if wrong is not None else ()
    return Answer(request, explanation, tuple(lines(explanation)), causes)
