"""The pages on which a control plane answers questions of its own kind, beside Istio's: what would happen to a request
(`question.py`), and what has changed (`history.py`). A query comes in, JSON leaves, or a problem."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from weft import __version__
from weft.base.problem import Problem, Where
from weft.control import audit_page
from weft.control.debug import Answer, Page, Query
from weft.control.question import Question, answer, moment
from weft.model.names import ObjectKey, where_of

if TYPE_CHECKING:
    from weft.control.history import Edit
    from weft.control.plane import ControlPlane


class Changed(msgspec.Struct, frozen=True):
    """One object of a moment: `what` is added, changed or removed."""

    object: ObjectKey
    what: str
    where: Where


class PastMoment(msgspec.Struct, frozen=True):
    number: int
    at: float
    changes: tuple[Changed, ...]


class Past(msgspec.Struct, frozen=True):
    begun: float
    moments: tuple[PastMoment, ...]


def pages(plane: ControlPlane) -> dict[str, Page]:
    return {
        "audit": audit_page.page(plane.mesh),
        "version": ("Which weft this is", _guarded(lambda _query: {"version": __version__})),
        "explain": ("What would happen to a request: question={…}", _guarded(lambda query: _explain(plane, query))),
        "history": ("What has changed, oldest first", _guarded(lambda query: _history(plane, query))),
    }


def _explain(plane: ControlPlane, query: Query) -> object:
    question = msgspec.json.decode(query.get("question", ""), type=Question)
    number = moment(plane.history, question.when, _now) if question.when else None
    return answer(plane.stage(number), question, _now())


def _history(plane: ControlPlane, _query: Query) -> object:
    return Past(
        plane.history.begun,
        tuple(PastMoment(each.number, each.at, tuple(map(_changed, each.edits))) for each in plane.history.moments()),
    )


def _changed(edit: Edit) -> Changed:
    what = "changed" if edit.before and edit.after else "added" if edit.after else "removed"
    origin = next((value.origin for value in edit.after or edit.before if value.origin is not None), None)
    return Changed(edit.key, what, where_of(origin, str(edit.key)))


def _guarded(say: Callable[[Query], object]) -> Callable[[Query], Awaitable[Answer]]:
    """What is wrong with a question goes back as a problem."""

    async def page(query: Query) -> Answer:
        try:
            return Answer(msgspec.json.encode(say(query)))
        except msgspec.DecodeError as error:
            problem = Problem(Where(), f"this is not a question: {error}")
        except Exception as error:
            told = getattr(error, "problem", None)
            if told is None:
                raise
            problem = told
        return Answer(msgspec.json.encode(problem), 400)

    return page


def _now() -> datetime:
    return datetime.now().astimezone()
