"""The pages on which a control plane answers questions of its own kind, beside Istio's: what would happen to a request
(`question.py`), and what has changed (`history.py`). A query comes in, JSON leaves, or a problem."""

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
from weft.inspect.debug.pages import DebugResponse, Page, Query
from weft.inspect.describe.pods_and_services import PodFacts, ServicePicture, describe_pod, describe_service
from weft.inspect.describe.text import pod_lines, service_lines
from weft.inspect.describe.tls_check import tls_check
from weft.inspect.live import live_stage
from weft.inspect.stage import NoSuchWorkload, Stage

if TYPE_CHECKING:
    from weft.control.plane import ControlPlane
    from weft.history.history import Moment


# Looking back may take long, and the loop has streams to serve; what is looked at does not change, so a thread can do
# it. One at a time: it is for people.
_looking_back = asyncio.Lock()


class PastMoment(msgspec.Struct, frozen=True):
    number: int
    at: float
    changes: tuple[ChangedObject, ...]
    digest: str = ""  # of all that was written, after it


class PastMoments(msgspec.Struct, frozen=True):
    begun: float
    moments: tuple[PastMoment, ...]
    digest: str = ""  # before all of them


class DiffQuestion(msgspec.Struct, frozen=True):
    """About two moments, named as in `Question.when`; without the second: and now."""

    before: str
    after: str = ""
    cases: tuple[RequestCase, ...] = ()
    recent: tuple[SeenRequest, ...] = ()


class PastDifference(msgspec.Struct, frozen=True):
    before: int
    after: int
    difference: Difference
    deserted: tuple[int, ...] = ()  # which of both had no pod yet


class Flip(msgspec.Struct, frozen=True):
    """Where a request began to end as it does; no moment: it has done so `since` all that is remembered began, or since
    those came who are needed for it to end at all. `whole`: before that there was no mesh, or not its caller."""

    moment: PastMoment | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    since: float = 0.0
    whole: bool = True
    because: str = ""  # which of several objects of that moment


class DescribeQuestion(msgspec.Struct, frozen=True):
    """Who is to be described."""

    kind: Literal["pod", "service"]
    name: str
    namespace: str = ""


class TlsQuestion(msgspec.Struct, frozen=True):
    """About calls to a host. `namespace` is the host's, if its name does not say it."""

    host: str
    port: int = 0
    caller: str = ""
    namespace: str = ""


class WhyQuestion(msgspec.Struct, frozen=True):
    """Of the resource of this name (`NAME.PATH`: of that part) at a pod's proxy; without a name: of all of the kind."""

    proxy: str
    resource: str = ""
    namespace: str = ""
    kind: str = ""


class DescribedObject(msgspec.Struct, frozen=True):
    facts: PodFacts | ServicePicture
    lines: tuple[str, ...]  # the same, for people


def pages(plane: ControlPlane) -> dict[str, Page]:
    return {
        "audit": audit_page.page(plane.mesh),
        "version": ("Which weft this is", _guarded(lambda _query: {"version": __version__})),
        "explain": ("What would happen to a request: question={…}", _guarded(lambda query: _explain(plane, query))),
        "bisect": (
            "The last change after which a request ended otherwise",
            _guarded(lambda query: _bisect(plane, query)),
        ),
        "diff": (
            "What changed between two moments: question={…}",
            _guarded(lambda query: _diff(plane, query)),
        ),
        "describe": (
            "What is known of a pod or a service: question={…}",
            _guarded(lambda query: _describe(plane, query)),
        ),
        "tls-check": (
            "Whether callers and servers agree: question={…}",
            _guarded(lambda query: _tls_check(plane, query)),
        ),
        "why": ("Which objects and rules made a resource: question={…}", _guarded(lambda query: _why(plane, query))),
        "history": ("What has changed, oldest first", _guarded(lambda query: _history(plane, query))),
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
    asked = msgspec.json.decode(query.get("question", ""), type=DiffQuestion)
    before = moment(plane.history, asked.before, _now)
    after = moment(plane.history, asked.after, _now) if asked.after else plane.history.latest
    past, calls = plane.history.past(), plane.calls.copy(fixed=True)

    def compared() -> PastDifference:
        was, is_ = (Stage(past.mesh_at(number), calls=calls) for number in (before, after))
        deserted = {number: None for number, stage in ((before, was), (after, is_)) if stage.deserted}
        return PastDifference(before, after, difference(was, is_, asked.cases, _now(), asked.recent), tuple(deserted))

    async with _looking_back:
        return await asyncio.to_thread(compared)


async def _bisect(plane: ControlPlane, query: Query) -> object:
    question = msgspec.json.decode(query.get("question", ""), type=Question)
    past, begun = plane.history.past(), plane.history.begun

    def looked_for() -> tuple[Culprit | Always, str]:
        found = culprit(past, question, _now())
        return found, _blamed(past, found.moment.number, question) if isinstance(found, Culprit) else ""

    async with _looking_back:
        found, because = await asyncio.to_thread(looked_for)
    if isinstance(found, Culprit):
        return Flip(_past(found.moment), found.before, found.after, because=because)
    if found.moment is not None:
        return Flip(after=found.after, since=found.moment.at)
    whole = not past.moments or past.moments[0].number == 1
    return Flip(after=found.after, since=begun if whole else past.moments[0].at, whole=whole)


def _blamed(past: Remembered, number: int, question: Question) -> str:
    before, after = (Stage(past.mesh_at(each)) for each in (number - 1, number))
    return turned_by(before, after, question, _now())


def _why(plane: ControlPlane, query: Query) -> object:
    asked = msgspec.json.decode(query.get("question", ""), type=WhyQuestion)
    stage = live_stage(plane)
    proxy = stage.find(asked.proxy, asked.namespace)
    refused = plane.refused(stage.group(proxy))
    if not asked.resource:
        return every(plane.mesh, stage, proxy, asked.kind, refused)
    return why(plane.mesh, stage, proxy, asked.resource, asked.kind, refused)


def _describe(plane: ControlPlane, query: Query) -> object:
    asked = msgspec.json.decode(query.get("question", ""), type=DescribeQuestion)
    if asked.kind == "pod":
        pod = describe_pod(plane.mesh, live_stage(plane), plane.problems(), asked.name, asked.namespace, plane.faulty())
        return DescribedObject(pod, tuple(pod_lines(pod)))
    service = describe_service(plane.mesh, plane.problems(), asked.name, asked.namespace, plane.faulty())
    return DescribedObject(service, tuple(service_lines(service)))


def _tls_check(plane: ControlPlane, query: Query) -> object:
    asked = msgspec.json.decode(query.get("question", ""), type=TlsQuestion)
    return tls_check(
        plane.mesh, live_stage(plane), asked.host, port=asked.port, caller=asked.caller, namespace=asked.namespace
    )


def _history(plane: ControlPlane, _query: Query) -> object:
    return PastMoments(
        plane.history.begun,
        tuple(map(_past, plane.history.moments())),
        plane.history.first_digest,
    )


def _past(moment: Moment) -> PastMoment:
    return PastMoment(moment.number, moment.at, tuple(map(changed_object, moment.edits)), moment.digest)


def _guarded(say: Callable[[Query], object]) -> Callable[[Query], Awaitable[DebugResponse]]:
    """What is wrong with a question goes back as a problem."""

    async def page(query: Query) -> DebugResponse:
        try:
            said = say(query)
            return DebugResponse(msgspec.json.encode(await said if inspect.isawaitable(said) else said))
        except msgspec.DecodeError as error:
            problem = Problem(Where(), f"this is not a question: {error}")
        except Ambiguous as error:
            return DebugResponse(msgspec.json.encode(error.problem), AMBIGUOUS)
        except Exception as error:
            told = getattr(error, "problem", None)
            if told is None:
                raise
            problem = told
        return DebugResponse(msgspec.json.encode(problem), 400)

    return page


def _now() -> datetime:
    return datetime.now().astimezone()
