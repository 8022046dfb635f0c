"""Records one path of a request through all decisions (`Walk`), and enumerates all paths (`every`). Where the result is
random, the code that decides calls `Walk.choose`, which returns one of the options. `every` repeats the walk until each
option of each choice was taken once, so the code that decides follows only one path at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from weft.explain.decision import (
    STOPPED,
    DecisionStage,
    Explanation,
    Kind,
    ObjectSource,
    Outcome,
    Step,
    Unsure,
    Verdict,
)
from weft.explain.request import RequestHeaders

T = TypeVar("T")

_MOST_WAYS = 128
# HTTP status of a proxy's own response -> gRPC status. A gRPC caller gets HTTP status 200 and this gRPC status.
_GRPC_OF_HTTP = {400: 13, 401: 16, 403: 7, 404: 12, 429: 14, 502: 14, 503: 14, 504: 14}
_BARE = ("NC", "NR")  # flags of responses without a body


class Walk:
    def __init__(self, given: tuple[int, ...] = ()) -> None:
        self.steps: list[Step] = []
        self.odds = 1.0
        self.proxy = ""  # the proxy whose decisions are being recorded
        # For each random choice: the number of the chosen option, and how many options there were.
        self.taken: list[tuple[int, int]] = []
        self.route = self.cluster = self.endpoint = self.workload = ""  # copied into the verdict
        self.endpoints: tuple[tuple[str, float], ...] = ()
        self.delay = 0.0
        self.provided = ""
        self.grpc = False  # whether the request is gRPC at the current proxy
        self.web = False  # whether a proxy converts the request from gRPC-Web, and back every response with a body
        self._given = given

    def tell(self, stage: DecisionStage, what: str, sources: tuple[ObjectSource, ...] = (), about: str = "") -> None:
        self.steps.append(Step(stage, what, sources, self.proxy, about))

    def end(
        self,
        kind: Kind,
        why: str,
        *,
        status: int = 0,
        flags: str = "",
        detail: str = "",
        location: str = "",
        headers: RequestHeaders | None = None,
    ) -> Verdict:
        """Returns a verdict with the route, cluster and endpoint that were recorded so far. `flags` and `detail`:
        Envoy's response flags and response_code_details. `location`: the target of a redirect. `headers`: the headers
        with which the request arrives at its destination; None if it does not arrive, or is not HTTP. For a gRPC
        request, an error `status` becomes HTTP status 200 and a gRPC status. `why`: the reason, as text."""
        arriving = list(headers) if headers is not None else []
        pseudo = dict(pair for pair in arriving if pair[0].startswith(":"))
        failure = 0 if not status or detail == "cors_response" else status
        return Verdict(
            kind,
            why,
            status=200 if self.grpc and failure else status,
            grpc_status=_GRPC_OF_HTTP.get(failure, 2)
            if failure and (self.grpc or (self.web and flags not in _BARE))
            else 0,
            flags=f"DI,{flags}" if flags and self.delay else flags,
            detail=detail,
            location=location,
            delay=self.delay,
            method=pseudo.get(":method", ""),
            host=pseudo.get(":authority", ""),
            path=pseudo.get(":path", ""),
            headers=tuple(pair for pair in arriving if not pair[0].startswith(":")),
            route=self.route,
            cluster=self.cluster,
            endpoint=self.endpoint,
            endpoints=self.endpoints,
            workload=self.workload,
            provided=self.provided,
            sources=self.steps[-1].sources if self.steps and kind in STOPPED else (),
        )

    def choose(self, options: Sequence[tuple[float, T]]) -> T:
        """Returns one of the options, which are pairs of a weight and a value, and multiplies the odds of this path
        by the option's share of the weights. An option of weight 0 is never chosen."""
        possible = [option for option in options if option[0] > 0]
        if not possible:
            raise Unsure("there is nothing to choose from")
        if len(possible) == 1:
            return possible[0][1]
        number = len(self.taken)
        choice = self._given[number] if number < len(self._given) else 0
        self.taken.append((choice, len(possible)))
        weight, chosen = possible[choice]
        self.odds *= weight / sum(weight for weight, _ in possible)
        return chosen


def every(journey: Callable[[Walk], Verdict]) -> Explanation:
    outcomes: list[Outcome] = []
    given: tuple[int, ...] | None = ()
    while given is not None and len(outcomes) < _MOST_WAYS:
        walk = Walk(given)
        try:
            verdict = journey(walk)
        except Unsure as error:
            verdict = walk.end(Kind.UNKNOWN, str(error))
        outcomes.append(Outcome(walk.odds, tuple(walk.steps), verdict))
        given = _next(walk.taken)
    if given is not None:
        rest = 1.0 - sum(outcome.odds for outcome in outcomes)
        outcomes.append(Outcome(rest, (), Verdict(Kind.UNKNOWN, f"more than {_MOST_WAYS} possible paths")))
    return Explanation(tuple(sorted(_once(outcomes), key=lambda outcome: -outcome.odds)))


def _once(outcomes: list[Outcome]) -> Iterable[Outcome]:
    """Merges outcomes with equal verdicts into one, which adds up their odds and has the steps of the first."""
    merged: dict[Verdict, Outcome] = {}
    for outcome in outcomes:
        same = merged.get(outcome.verdict)
        merged[outcome.verdict] = (
            outcome if same is None else Outcome(same.odds + outcome.odds, same.steps, same.verdict)
        )
    return merged.values()


def _next(taken: list[tuple[int, int]]) -> tuple[int, ...] | None:
    """The choices of the next path to walk, given those of the last path (`taken`: the chosen option and the number of
    options of each choice). Paths are walked in counting order: the last choice that has an untried option advances to
    that option, and the choices after it are dropped. None if no choice has an untried option, because all paths were
    walked."""
    for position in reversed(range(len(taken))):
        choice, number = taken[position]
        if choice + 1 < number:
            return (*(each for each, _ in taken[:position]), choice + 1)
    return None
