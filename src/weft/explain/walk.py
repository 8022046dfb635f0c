"""One way through all decisions. Where chance decides, the walk asks for a choice; `every` goes again for each choice
that has not been taken, until all ways have been gone, so that the stages themselves read straight down."""

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
# To a gRPC caller, what a proxy says itself is an answer of status 200 that carries gRPC's own status.
_GRPC_OF_HTTP = {400: 13, 401: 16, 403: 7, 404: 12, 429: 14, 502: 14, 503: 14, 504: 14}
_BARE = ("NC", "NR")  # answers without a body


class Walk:
    def __init__(self, given: tuple[int, ...] = ()) -> None:
        self.steps: list[Step] = []
        self.odds = 1.0
        self.proxy = ""  # whose decisions are being told
        self.taken: list[tuple[int, int]] = []  # the choice, and of how many
        self.route = self.cluster = self.endpoint = self.workload = ""  # what the verdict will say of the way
        self.endpoints: tuple[tuple[str, float], ...] = ()
        self.delay = 0.0
        self.provided = ""
        self.grpc = False  # whether the proxy that decides is asked by gRPC
        self.web = False  # whether one on the way makes gRPC of gRPC-Web, and an answer to that of any with a body
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
        """The verdict at this place, with what has been told of the way."""
        arriving = list(headers) if headers is not None else []
        pseudo = dict(pair for pair in arriving if pair[0].startswith(":"))
        said = 0 if not status or detail == "cors_response" else status
        return Verdict(
            kind,
            why,
            status=200 if self.grpc and said else status,
            grpc_status=_GRPC_OF_HTTP.get(said, 2) if said and (self.grpc or (self.web and flags not in _BARE)) else 0,
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
        """One of these, with its share of all weights. What has no weight is never chosen."""
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
        outcomes.append(Outcome(rest, (), Verdict(Kind.UNKNOWN, f"more than {_MOST_WAYS} ways it may go")))
    return Explanation(tuple(sorted(_once(outcomes), key=lambda outcome: -outcome.odds)))


def _once(outcomes: list[Outcome]) -> Iterable[Outcome]:
    """Ways that end alike in everything are one outcome, told by the first of them."""
    found: dict[Verdict, Outcome] = {}
    for outcome in outcomes:
        same = found.get(outcome.verdict)
        found[outcome.verdict] = (
            outcome if same is None else Outcome(same.odds + outcome.odds, same.steps, same.verdict)
        )
    return found.values()


def _next(taken: list[tuple[int, int]]) -> tuple[int, ...] | None:
    """The choices of the next way, as one counts: the last that has another option takes it."""
    for position in reversed(range(len(taken))):
        choice, number = taken[position]
        if choice + 1 < number:
            return (*(each for each, _ in taken[:position]), choice + 1)
    return None
