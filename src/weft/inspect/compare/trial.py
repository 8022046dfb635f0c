"""Requests tried out upon a mesh: the cases of `weft test`, and for `weft diff` what happens to each before and after a
change. Cases come in, outcomes leave."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice

import msgspec

from weft.api.request_test import RequestCase
from weft.base.problem import Problem, Where
from weft.explain.decision import Explanation
from weft.explain.expectation import Expectation, Expected, differences
from weft.explain.explain import explain
from weft.explain.request import Token
from weft.explain.text import lines
from weft.explain.world import ExplainedWorkload
from weft.history.history import Edit, Moment, Past, mesh_of
from weft.inspect.ask.question import Question, request_in
from weft.inspect.compare.gateway_requests import edge_calls
from weft.inspect.reasons.steps import sourced
from weft.inspect.stage import Stage
from weft.model.group import Group, ProxyKind
from weft.model.service import Protocol

_HTTP = (Protocol.HTTP, Protocol.HTTP2, Protocol.GRPC)


class Tried(msgspec.Struct, frozen=True):
    case: RequestCase
    wrong: tuple[str, ...]  # what is not as expected
    lines: tuple[str, ...] = ()  # what happens to it instead


class Turned(msgspec.Struct, frozen=True):
    """A request to which something else happens than before."""

    request: str
    before: tuple[str, ...]  # one for each way it may go
    after: tuple[str, ...]
    where: Where = Where()  # of the test that declares it
    because: str = ""  # which of the changed objects turned it
    count: int = 0  # how often it was seen, if it is of the recent traffic


def try_case(stage: Stage, case: RequestCase, now: datetime) -> Tried:
    """Never raises: what cannot be asked is wrong."""
    met = Met(stage)
    explained = _explained(met, case, now)
    if isinstance(explained, Problem):
        hint = f" ({explained.hint})" if explained.hint else ""
        return Tried(case, (f"{explained.what}{hint}",))
    expectation = Expectation(
        Expected(case.verdict) if case.verdict else None,
        case.status,
        case.workload,
        case.subset,
        case.path,
        case.odds,
    )
    wrong = tuple(differences(expectation, explained))
    return Tried(case, wrong, tuple(lines(sourced(stage.mesh, stage.group_of, explained))) if wrong else ())


class JudgedRequest(msgspec.Struct, frozen=True):
    """What would happen to a request: `ways` as a caller notices it, `explanation` if it could be asked at all."""

    ways: tuple[str, ...]
    met: Met
    explanation: Explanation | None = None

    def sourced(self) -> Explanation:
        """With the places of its objects, for which few ask."""
        stage = self.met.stage
        return sourced(stage.mesh, stage.group_of, self.explanation or Explanation(()))


class Met:
    """A stage (weft.explain.world.World) that takes note of whose proxies it was asked for."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.groups: set[Group] = set()
        self.behind, self.no_port, self.uncalled = stage.behind, stage.no_port, stage.uncalled
        self.resolve, self.intercepts, self.after_call = stage.resolve, stage.intercepts, stage.after_call
        self.on_demand, self.unseen, self.is_shown = stage.on_demand, stage.unseen, stage.is_shown

    def workload(self, name: str) -> ExplainedWorkload | None:
        return self._noted(self.stage.workload(name))

    def at(self, address: str) -> ExplainedWorkload | None:
        return self._noted(self.stage.at(address))

    def _noted(self, found: ExplainedWorkload | None) -> ExplainedWorkload | None:
        if found is not None and found.resources is not None and (group := self.stage.group_of(found.name)):
            self.groups.add(group)
        return found


def judged(
    stage: Stage, case: RequestCase | Question, now: datetime, shown: Callable[[str], str] = str
) -> JudgedRequest:
    """Never raises: what cannot be asked has one way, which says why. `shown`: how paths are to be told."""
    met = Met(stage)
    explained = _explained(met, case, now)
    return JudgedRequest(_ways(explained, shown), met, None if isinstance(explained, Problem) else explained)


class Culprit(msgspec.Struct, frozen=True):
    moment: Moment
    before: tuple[str, ...]
    after: tuple[str, ...]


class Always(msgspec.Struct, frozen=True):
    """It never ended otherwise. `moment`: when those came who make it end so at all; None: they were there first."""

    moment: Moment | None
    after: tuple[str, ...]


def culprit(past: Past, question: Question, now: datetime) -> Culprit | Always:
    """The last change after which the request ended otherwise than before. That the pods of a mesh come when it starts
    is no change, and before its caller came it did not end at all. Raises what carries a problem, if it cannot be asked
    now."""
    after = _ways(_walked(Met(Stage(mesh_of(past.objects, past.settings))), question, now))
    start = _start(past.moments, max(past.restored, 0))
    came: Moment | None = None
    for moment, mesh in past.backwards():
        if 0 <= past.restored < moment.number <= start:
            continue  # before this run there are its pods
        try:
            before = _ways(_walked(Met(Stage(mesh)), question, now))
        except Exception as error:
            if not isinstance(getattr(error, "problem", None), Problem):
                raise
            came = came or moment
            continue
        if before == after:
            came = None  # it had only gone for a while
            continue
        if came is not None and moment.number <= past.restored < came.number:
            came = None  # it came with this run, and was there in the last
        blamed = came or moment
        if past.restored < blamed.number <= start:
            return Always(blamed, after)
        return Culprit(blamed, before, after)
    return Always(came, after)


def _start(moments: tuple[Moment, ...], since: int) -> int:
    """The last moment until which nothing happened but that pods came, since the objects with which this run began."""
    last = since
    for moment in moments:
        if moment.number <= since:
            continue
        if moment.number != last + 1 or not all(map(_arrives, moment.edits)):
            break
        last = moment.number
    return last


def _arrives(edit: Edit) -> bool:
    was_ready, is_ready = (
        any(getattr(value, "ready", True) for value in values) for values in (edit.before, edit.after)
    )
    # What came and went again within one moment is as it was.
    return edit.of_endpoints and (edit.before == edit.after or (bool(edit.after) and (is_ready or not was_ready)))


def every_call(stage: Stage, most: int) -> Iterator[RequestCase]:
    """A request from a pod of each group to each HTTP port, and those that enter by gateways: what is tried when nobody
    says what to try. Pods without a proxy call alike, so that one of them stands for all."""
    from_outside = list(islice(edge_calls(stage), most // 2))
    yield from from_outside
    meshed = [pods[0] for group, pods in sorted(stage.groups().items()) if group.kind is not ProxyKind.GATEWAY]
    calls = (
        RequestCase(Where(), caller, f"http://{service.host}:{port.number}/")
        for caller in (*stage.without_proxy()[:1], *meshed)
        for service in sorted(stage.services(), key=lambda each: each.host)
        for port in service.ports
        if port.protocol in _HTTP and "*" not in service.host
    )
    yield from islice(calls, most - len(from_outside))


def _walked(met: Met, question: Question, now: datetime) -> Explanation:
    return explain(request_in(met.stage, question, now), met)


def _explained(met: Met, case: RequestCase | Question, now: datetime) -> Explanation | Problem:
    try:
        return _walked(met, case if isinstance(case, Question) else _question(case), now)
    except Exception as error:
        problem = getattr(error, "problem", None)
        if not isinstance(problem, Problem):
            raise
        return problem


def _question(case: RequestCase) -> Question:
    tokens = (Token("a-token", json.loads(case.claims)),) if case.claims else ()
    namespace = "" if "." in case.caller or "/" in case.caller else case.namespace
    return Question(case.caller, case.to, namespace, case.method, case.headers, tokens, case.source)


def _ways(explained: Explanation | Problem, shown: Callable[[str], str] = str) -> tuple[str, ...]:
    """What a caller would notice, without which pod of a workload it meets."""
    if isinstance(explained, Problem):
        return (explained.what,)
    odds: dict[str, float] = {}
    for outcome in explained.outcomes:
        verdict = outcome.verdict
        status = f" {verdict.status}" if verdict.status else ""
        place = verdict.cluster or shown(verdict.location) or verdict.why
        said = f"{verdict.kind}{status}: {place}"
        if verdict.path:
            said += f" as {verdict.method} {verdict.host}{shown(verdict.path)}"
        if verdict.delay:
            said += f" after {verdict.delay:g} s"
        odds[said] = odds.get(said, 0.0) + outcome.odds
    ordered = sorted(odds.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple(said if share > 0.9999 else f"{100 * share:.3g} % {said}" for said, share in ordered)
