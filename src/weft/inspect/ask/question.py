"""A question about a request, as a command sends it: it comes in with a person's words, and out goes the request that
is meant (`answer.py` tells what would happen to it), and the moment, now or one that the control plane remembers."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from weft.base.problem import Problem, Where
from weft.explain.request import Request, Token
from weft.explain.url import BadSource, request_of
from weft.history.history import History
from weft.history.object_texts import DIGITS
from weft.inspect.stage import NoSuchWorkload, Stage

_MOMENT = re.compile(r"@(-?\d{1,9})")
_END = 999_999  # microseconds: the last of a second
_DIGEST = re.compile(r"@([0-9a-f]{4,64})")


class Question(msgspec.Struct, frozen=True):
    caller: str  # a pod or a workload
    to: str  # a URL
    namespace: str = ""  # of the caller
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    tokens: tuple[Token, ...] = ()
    source: str = ""  # the address of a caller from outside, where the caller is a gateway
    when: str = ""  # `@17`, `@-1`, `@5be1c0ffee12`, `14:03`, `2026-11-16T14:03`; nothing: now


class BadTime(Exception):
    def __init__(self, when: str) -> None:
        what = f"`{when}` is no time that could be looked at"
        super().__init__(what)
        hint = "for example: 14:03, 2026-11-16T14:03, or of weft history @17, @-1, or a digest"
        self.problem = Problem(Where(), what, hint)


class NotThen(Exception):
    """Who is asked about was not there at a moment of the past, or nobody was."""

    def __init__(self, number: int, missing: NoSuchWorkload, stage: Stage, moments: tuple[int, int]) -> None:
        """`moments`: the first and the last that are remembered."""
        what = f"at moment {number} {missing.problem.what.replace('there is no', 'there was no', 1)}"
        if stage.deserted:
            what = f"at moment {number} there was no workload or pod yet"
        super().__init__(what)
        known = f"there are moments {moments[0]} to {moments[1]}; list them with: weft history -A"
        self.problem = Problem(Where(), what, "\n".join(filter(None, (missing.problem.hint, known))))


def request_in(stage: Stage, question: Question, now: datetime) -> Request:
    """Raises what carries a problem: NoSuchWorkload, Ambiguous, BadUrl, BadMethod, BadSource."""
    if question.source and not stage.instance(question.caller, question.namespace).gateway:
        raise BadSource(question.source, f"is not where {question.caller} calls from: it is no gateway")
    return request_of(
        question.to,
        caller=stage.find(question.caller, question.namespace),
        source=question.source,
        method=question.method,
        headers=question.headers,
        tokens=question.tokens,
        now=int(now.timestamp()),
    )


def moment(history: History, when: str, now: Callable[[], datetime]) -> int:
    """The number of the moment that is meant; before a time there may be an `@` too. Raises BadTime, or Forgotten."""
    numbered, digest = _MOMENT.fullmatch(when), _DIGEST.fullmatch(when)
    if digest and (not numbered or len(digest[1]) == DIGITS):
        return history.number_of(digest[1])
    if numbered:
        return history.number(int(numbered[1]))
    return history.number_at(_time(when.removeprefix("@"), now()).timestamp())


def _time(when: str, now: datetime) -> datetime:
    """In the zone of `now`, unless it says another. A time of day is the last that has been. A second lasts to its end,
    as `weft history` shows no less of a time."""
    for form, end in (("%H:%M", 0), ("%H:%M:%S", _END)):
        try:
            given = datetime.strptime(when, form)  # noqa: DTZ007 - only its hours and minutes are taken
        except ValueError:
            continue
        today = now.replace(hour=given.hour, minute=given.minute, second=given.second, microsecond=0)
        return (today if today <= now else today - timedelta(days=1)).replace(microsecond=end)
    try:
        given = datetime.fromisoformat(when)
    except ValueError:
        raise BadTime(when) from None
    if given.second and not given.microsecond:
        given = given.replace(microsecond=_END)
    return given if given.tzinfo else given.replace(tzinfo=now.tzinfo)
