"""A question about a request, in the words of the user, as a command sends it to a control plane. `request_in`
resolves it to a request, which `answer.py` explains. `moment` resolves its time to a recorded moment of the
history."""

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
_END = 999_999  # microseconds: the end of a second
_DIGEST = re.compile(r"@([0-9a-f]{4,64})")


class Question(msgspec.Struct, frozen=True):
    caller: str  # a pod or a workload
    to: str  # a URL
    namespace: str = ""  # namespace of the caller
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    tokens: tuple[Token, ...] = ()
    source: str = ""  # address of the external client, if the caller is a gateway
    when: str = ""  # past moment: `@17`, `@-1`, `@5be1c0ffee12`, `14:03`, `2026-11-16T14:03`; "": now


class BadTime(Exception):
    def __init__(self, when: str) -> None:
        what = f"`{when}` is not a time"
        super().__init__(what)
        hint = "for example: 14:03, 2026-11-16T14:03, or from weft history @17, @-1, or a digest"
        self.problem = Problem(Where(), what, hint)


class NotThen(Exception):
    """Raised for a question about a past moment at which its caller did not exist, or at which the mesh had no
    workload at all."""

    def __init__(self, number: int, missing: NoSuchWorkload, stage: Stage, moments: tuple[int, int]) -> None:
        """`number`: the moment that the question names. `missing`: the error for the caller at that moment. `stage`:
        the mesh at that moment. `moments`: the numbers of the first and the last recorded moment."""
        what = f"at moment {number} {missing.problem.what.replace('there is no', 'there was no', 1)}"
        if stage.deserted:
            what = f"at moment {number} there was no workload or pod yet"
        super().__init__(what)
        known = f"there are moments {moments[0]} to {moments[1]}; list them with: weft history -A"
        self.problem = Problem(Where(), what, "\n".join(filter(None, (missing.problem.hint, known))))


def request_in(stage: Stage, question: Question, now: datetime) -> Request:
    """Resolve the question to a request in this stage. Raises exceptions with a `problem`: NoSuchWorkload,
    Ambiguous, BadUrl, BadMethod, BadSource."""
    if question.source and not stage.instance(question.caller, question.namespace).gateway:
        raise BadSource(question.source, f"cannot be set for {question.caller}: it is not a gateway")
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
    """Return the number of the moment of the history that `when` names by number, digest or time. A time may also start
    with `@`. Raises BadTime, or Forgotten."""
    numbered, digest = _MOMENT.fullmatch(when), _DIGEST.fullmatch(when)
    if digest and (not numbered or len(digest[1]) == DIGITS):
        return history.number_of(digest[1])
    if numbered:
        return history.number(int(numbered[1]))
    return history.number_at(_time(when.removeprefix("@"), now()).timestamp())


def _time(when: str, now: datetime) -> datetime:
    """Parse a time of day or a date with a time, in the time zone of `now` unless `when` names another zone. A time
    of day is the latest one in the past. A time in whole seconds means the end of that second, since `weft
    history` shows whole seconds."""
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
