"""Evaluate requests on a mesh: the cases of `weft test`, the requests that `weft diff` compares before and after a
change, and the search of `weft bisect` for the change that changed the outcome of a request."""

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
    wrong: tuple[str, ...]  # the differences from the expected outcome, as text
    lines: tuple[str, ...] = ()  # explanation of the actual outcome, if it differs


class Turned(msgspec.Struct, frozen=True):
    """A request whose outcome changed. `before` and `after`: a line per possible outcome. `where`: the place of the
    test that declares the request. `because`: the changed object that is responsible. `count`: how often the access
    logs contain the request; 0 for a request that is not from access logs."""

    request: str
    before: tuple[str, ...]  # one line per possible outcome
    after: tuple[str, ...]
    where: Where = Where()  # place of the test that declares the request
    because: str = ""  # the changed object that is responsible
    count: int = 0  # for recent traffic: how often the access logs contain it


def try_case(stage: Stage, case: RequestCase, now: datetime) -> Tried:
    """Compare the predicted outcome of a test case with the expected one. Never raises: if the request cannot be
    resolved, `wrong` contains the reason."""
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
    """The predicted outcome of a request. `ways`: a line per possible outcome, as the caller sees it. `met`: the stage
    on which the request was tried, and the groups whose proxies it passed. `explanation`: None if the request could not
    be resolved."""

    ways: tuple[str, ...]
    met: Met
    explanation: Explanation | None = None

    def sourced(self) -> Explanation:
        """The explanation, with the files and lines of its objects. They are added only here, since few explanations
        are printed."""
        stage = self.met.stage
        return sourced(stage.mesh, stage.group_of, self.explanation or Explanation(()))


class Met:
    """Wraps a stage (a mesh at one moment) as a `weft.explain.world.World`, and records the groups of the proxies
    that an explained request passes."""

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

    def _noted(self, workload: ExplainedWorkload | None) -> ExplainedWorkload | None:
        if workload is not None and workload.resources is not None and (group := self.stage.group_of(workload.name)):
            self.groups.add(group)
        return workload


def judged(
    stage: Stage, case: RequestCase | Question, now: datetime, shown: Callable[[str], str] = str
) -> JudgedRequest:
    """Predict the outcome of the request `case` in this stage. Never raises: if the request cannot be resolved, `ways`
    contains only the reason. `shown`: formats the URL paths and redirect locations in `ways`; `shape_of`, for example,
    replaces IDs in them."""
    met = Met(stage)
    explained = _explained(met, case, now)
    return JudgedRequest(_ways(explained, shown), met, None if isinstance(explained, Problem) else explained)


class Culprit(msgspec.Struct, frozen=True):
    moment: Moment
    before: tuple[str, ...]
    after: tuple[str, ...]


class Always(msgspec.Struct, frozen=True):
    """The result of `culprit` if no recorded change has changed the outcome of the request. `moment`: when the
    workloads that the request needs were added; None if they existed from the start. `after`: the current outcomes, a
    line each."""

    moment: Moment | None
    after: tuple[str, ...]


def culprit(past: Past, question: Question, now: datetime) -> Culprit | Always:
    """Find the last change in `past` (a copy of the history) that changed the outcome of the request in `question`.
    Pods that are added while the mesh starts do not count, nor does the time before the caller existed. If no change
    counts, an `Always` is returned. Raises an exception with a `problem` if the request cannot be resolved now."""
    after = _ways(_walked(Met(Stage(mesh_of(past.objects, past.settings))), question, now))
    start = _start(past.moments, max(past.restored, 0))
    came: Moment | None = None
    for moment, mesh in past.backwards():
        if 0 <= past.restored < moment.number <= start:
            continue  # pods that were added while this run of the mesh started
        try:
            before = _ways(_walked(Met(Stage(mesh)), question, now))
        except Exception as error:
            if not isinstance(getattr(error, "problem", None), Problem):
                raise
            came = came or moment
            continue
        if before == after:
            came = None  # the request's caller was absent only for a while
            continue
        if came is not None and moment.number <= past.restored < came.number:
            came = None  # the caller was added when this run started, but existed in the previous run
        blamed = came or moment
        if past.restored < blamed.number <= start:
            return Always(blamed, after)
        return Culprit(blamed, before, after)
    return Always(came, after)


def _start(moments: tuple[Moment, ...], since: int) -> int:
    """Return the number of the moment that ends the latest start of the mesh. The start consists of the first moments
    after `since`, as long as each of them only adds pods; if the first one does more, return `since`. `moments`: all
    recorded moments. `since`: the number of the last moment before the mesh was started."""
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
    # An endpoint that was added and removed within one moment is unchanged.
    return edit.of_endpoints and (edit.before == edit.after or (bool(edit.after) and (is_ready or not was_ready)))


def every_call(stage: Stage, most: int) -> Iterator[RequestCase]:
    """Generate requests from a pod of each group to each HTTP port, and requests through gateways, at most `most` in
    total. Pods without a proxy behave alike, so one of them stands for all."""
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
    """The possible outcomes of a request as a caller sees them, one line each, the likeliest first; if the request
    could not be resolved (a Problem), only the reason. `shown`: formats the URL paths and redirect locations. Pods of
    one workload are not distinguished."""
    if isinstance(explained, Problem):
        return (explained.what,)
    odds: dict[str, float] = {}
    for outcome in explained.outcomes:
        verdict = outcome.verdict
        status = f" {verdict.status}" if verdict.status else ""
        place = verdict.cluster or shown(verdict.location) or verdict.why
        way = f"{verdict.kind}{status}: {place}"
        if verdict.path:
            way += f" as {verdict.method} {verdict.host}{shown(verdict.path)}"
        if verdict.delay:
            way += f" after {verdict.delay:g} s"
        odds[way] = odds.get(way, 0.0) + outcome.odds
    ordered = sorted(odds.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple(way if share > 0.9999 else f"{100 * share:.3g} % {way}" for way, share in ordered)
