"""Serve weft's own debug pages, beside Istio's: explain, bisect, diff, describe, tls-check, why, first_call,
audit and history.
Input: a query. Output: JSON, or a problem."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from weft import __version__
from weft.api.request_test import RequestCase
from weft.base.ambiguous import AMBIGUOUS, Ambiguous
from weft.base.problem import Problem, Where
from weft.history.history import Past as Remembered
from weft.inspect.ask.answer import answer
from weft.inspect.ask.causes import Wrong, stale
from weft.inspect.ask.question import NotThen, Question, moment
from weft.inspect.ask.why import every, why
from weft.inspect.audit import page as audit_page
from weft.inspect.compare.changed_objects import ChangedObject, changed_object, turned_by
from weft.inspect.compare.recent_traffic import SeenRequest
from weft.inspect.compare.trial import Always, Culprit, culprit
from weft.inspect.compare.what_if import Difference, difference
from weft.inspect.debug import config_dump
from weft.inspect.debug.pages import DebugResponse, Page, Query
from weft.inspect.describe.pods_and_services import PodFacts, ServicePicture, describe_pod, describe_service
from weft.inspect.describe.text import pod_lines, service_lines
from weft.inspect.describe.tls_check import tls_check
from weft.inspect.first_call import after_first_call
from weft.inspect.live import live_stage
from weft.inspect.stage import NoSuchWorkload, Stage
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, ROUTE

if TYPE_CHECKING:
    from weft.control.plane import ControlPlane
    from weft.history.history import Moment


# Serializes the requests about the past. They may take long, so they run on a thread: the event loop has streams to
# serve, and the past does not change. One at a time is enough, since only users request them.
_looking_back = asyncio.Lock()


class PastMoment(msgspec.Struct, frozen=True):
    number: int
    at: float
    changes: tuple[ChangedObject, ...]
    digest: str = ""  # digest of all objects after the moment


class PastMoments(msgspec.Struct, frozen=True):
    begun: float
    moments: tuple[PastMoment, ...]
    digest: str = ""  # digest of all objects before the first moment


class DiffQuestion(msgspec.Struct, frozen=True):
    """The two moments to compare, named as in `Question.when`. `after` defaults to now. `cases`: declared requests to
    try at both moments. `recent`: requests from access logs, tried in the same way."""

    before: str
    after: str = ""
    cases: tuple[RequestCase, ...] = ()
    recent: tuple[SeenRequest, ...] = ()


class PastDifference(msgspec.Struct, frozen=True):
    before: int
    after: int
    difference: Difference
    deserted: tuple[int, ...] = ()  # numbers of the compared moments at which no pod existed yet


class Flip(msgspec.Struct, frozen=True):
    """The moment at which the outcome of a request changed to the current outcome. If `moment` is None, the outcome is
    unchanged since the time `since`: since the mesh started, since the request's workloads were added, or, if `whole`
    is False, since the oldest recorded change (earlier changes were dropped). `before` and `after`: the outcomes before
    and after that moment, a line each. `because`: the responsible object, if several objects changed at that moment."""

    moment: PastMoment | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    since: float = 0.0
    whole: bool = True
    because: str = ""  # the responsible object, if several objects changed at that moment


class DescribeQuestion(msgspec.Struct, frozen=True):
    """The pod or service to describe."""

    kind: Literal["pod", "service"]
    name: str
    namespace: str = ""


class TlsQuestion(msgspec.Struct, frozen=True):
    """The host for which the TLS of callers and servers is compared. `namespace`: the namespace of the host's service,
    if the host name does not contain it. `port`: 0 for all ports. `caller`: a pod, to check only its calls; "" for all
    pods with a proxy."""

    host: str
    port: int = 0
    caller: str = ""
    namespace: str = ""


class FirstCallQuestion(msgspec.Struct, frozen=True):
    """The pod, and the hosts that it calls for the first time; without hosts, all that it may call. `namespace`: that
    of the pod, if `proxy` does not contain it."""

    proxy: str
    hosts: tuple[str, ...] = ()
    namespace: str = ""


class WhyQuestion(msgspec.Struct, frozen=True):
    """A question why a pod's proxy has a resource. `resource`: the resource's name, or `NAME.PATH` for one part of it;
    "" for all resources of the kind. `namespace`: that of the pod, if `proxy` does not contain it. `kind`: the kind of
    the resource; "" for any. `called`: hosts that the proxy is assumed to have called, () for all; None for the
    proxy as it is."""

    proxy: str
    resource: str = ""
    namespace: str = ""
    kind: str = ""
    called: tuple[str, ...] | None = None


class DescribedObject(msgspec.Struct, frozen=True):
    facts: PodFacts | ServicePicture
    lines: tuple[str, ...]  # the facts as text


def pages(plane: ControlPlane) -> dict[str, Page]:
    return {
        "audit": audit_page.page(plane.mesh, egress=plane.egress),
        "version": ("The version of weft", _guarded(lambda _query: {"version": __version__})),
        "explain": ("What would happen to a request: question={…}", _guarded(lambda query: _explain(plane, query))),
        "bisect": (
            "The last change that changed the outcome of a request: question={…}",
            _guarded(lambda query: _bisect(plane, query)),
        ),
        "diff": (
            "What changed between two moments: question={…}",
            _guarded(lambda query: _diff(plane, query)),
        ),
        "describe": (
            "A pod or a service, with the objects that affect it: question={…}",
            _guarded(lambda query: _describe(plane, query)),
        ),
        "tls-check": (
            "Whether callers and servers agree on TLS: question={…}",
            _guarded(lambda query: _tls_check(plane, query)),
        ),
        "first_call": (
            "The config that a proxy would have after a first call, as Envoy's config_dump: question={…}",
            _guarded(lambda query: _first_call(plane, query)),
        ),
        "why": ("The objects and rules behind a resource: question={…}", _guarded(lambda query: _why(plane, query))),
        "history": ("The recorded changes, oldest first", _guarded(lambda query: _history(plane, query))),
    }


async def _explain(plane: ControlPlane, query: Query) -> object:
    question = msgspec.json.decode(query.get("question", ""), type=Question)
    if not question.when:
        behind = stale(known.sync for known in plane.diagnosis.proxies())
        return answer(live_stage(plane), question, _now(), Wrong(plane.problems(), plane.faulty(), behind))
    number, past = moment(plane.history, question.when, _now), plane.history.past()
    calls, moments = plane.calls.copy(), (plane.history.oldest, plane.history.latest)

    def looked_at() -> object:
        stage = Stage(past.mesh_at(number), calls=calls)
        try:
            return answer(stage, question, _now())
        except NoSuchWorkload as missing:
            raise NotThen(number, missing, stage, moments) from missing

    async with _looking_back:
        return await asyncio.to_thread(looked_at)


async def _diff(plane: ControlPlane, query: Query) -> object:
    question = msgspec.json.decode(query.get("question", ""), type=DiffQuestion)
    before = moment(plane.history, question.before, _now)
    after = moment(plane.history, question.after, _now) if question.after else plane.history.latest
    past, calls = plane.history.past(), plane.calls.copy(fixed=True)

    def compared() -> PastDifference:
        was, is_ = (Stage(past.mesh_at(number), calls=calls) for number in (before, after))
        deserted = {number: None for number, stage in ((before, was), (after, is_)) if stage.deserted}
        return PastDifference(
            before, after, difference(was, is_, question.cases, _now(), question.recent), tuple(deserted)
        )

    async with _looking_back:
        return await asyncio.to_thread(compared)


async def _bisect(plane: ControlPlane, query: Query) -> object:
    question = msgspec.json.decode(query.get("question", ""), type=Question)
    past, begun = plane.history.past(), plane.history.begun

    def looked_for() -> tuple[Culprit | Always, str]:
        result = culprit(past, question, _now())
        return result, _blamed(past, result.moment.number, question) if isinstance(result, Culprit) else ""

    async with _looking_back:
        result, because = await asyncio.to_thread(looked_for)
    if isinstance(result, Culprit):
        return Flip(_past(result.moment), result.before, result.after, because=because)
    if result.moment is not None:
        return Flip(after=result.after, since=result.moment.at)
    whole = not past.moments or past.moments[0].number == 1
    return Flip(after=result.after, since=begun if whole else past.moments[0].at, whole=whole)


def _blamed(past: Remembered, number: int, question: Question) -> str:
    before, after = (Stage(past.mesh_at(each)) for each in (number - 1, number))
    return turned_by(before, after, question, _now())


def _why(plane: ControlPlane, query: Query) -> object:
    question = msgspec.json.decode(query.get("question", ""), type=WhyQuestion)
    stage = live_stage(plane)
    proxy = stage.find(question.proxy, question.namespace)
    refused = plane.refused(stage.group(proxy))
    if question.called is not None:
        stage = after_first_call(plane, stage, proxy, question.called)
    if not question.resource:
        return every(plane.mesh, stage, proxy, question.kind, refused)
    return why(plane.mesh, stage, proxy, question.resource, question.kind, refused)


async def _first_call(plane: ControlPlane, query: Query) -> object:
    question = msgspec.json.decode(query.get("question", ""), type=FirstCallQuestion)
    stage = live_stage(plane)
    proxy = stage.find(question.proxy, question.namespace)
    group, after = stage.group(proxy), after_first_call(plane, stage, proxy, question.hosts)
    # Translated before the event loop runs other tasks, which may change the mesh.
    resources = {type_url: after.named_resources(group, type_url) for type_url in (CLUSTER, ENDPOINT, LISTENER, ROUTE)}
    return {"configs": await config_dump.sections_of(resources.__getitem__)}


def _describe(plane: ControlPlane, query: Query) -> object:
    question = msgspec.json.decode(query.get("question", ""), type=DescribeQuestion)
    if question.kind == "pod":
        pod = describe_pod(
            plane.mesh, live_stage(plane), plane.problems(), question.name, question.namespace, plane.faulty()
        )
        return DescribedObject(pod, tuple(pod_lines(pod)))
    service = describe_service(plane.mesh, plane.problems(), question.name, question.namespace, plane.faulty())
    return DescribedObject(service, tuple(service_lines(service)))


def _tls_check(plane: ControlPlane, query: Query) -> object:
    question = msgspec.json.decode(query.get("question", ""), type=TlsQuestion)
    return tls_check(
        plane.mesh,
        live_stage(plane),
        question.host,
        port=question.port,
        caller=question.caller,
        namespace=question.namespace,
    )


def _history(plane: ControlPlane, _query: Query) -> object:
    return PastMoments(
        plane.history.begun,
        tuple(map(_past, plane.history.moments())),
        plane.history.first_digest,
    )


def _past(moment: Moment) -> PastMoment:
    return PastMoment(moment.number, moment.at, tuple(map(changed_object, moment.edits)), moment.digest)


def _guarded(handler: Callable[[Query], object]) -> Callable[[Query], Awaitable[DebugResponse]]:
    """Turn a handler into a page. The page responds with the handler's result as JSON, or with a 400 and the problem
    if the question is wrong."""

    async def page(query: Query) -> DebugResponse:
        try:
            result = handler(query)
            return DebugResponse(msgspec.json.encode(await result if inspect.isawaitable(result) else result))
        except msgspec.DecodeError as error:
            problem = Problem(Where(), f"`question` is not valid: {error}")
        except Ambiguous as error:
            return DebugResponse(msgspec.json.encode(error.problem), AMBIGUOUS)
        except Exception as error:
            carried = getattr(error, "problem", None)
            if carried is None:
                raise
            problem = carried
        return DebugResponse(msgspec.json.encode(problem), 400)

    return page


def _now() -> datetime:
    return datetime.now().astimezone()
