"""Formats an explanation as text: one line for each decision, with its source objects, and the verdict last. The steps
that all outcomes share are printed once; later outcomes show only the steps that differ from the first."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from weft.explain.decision import Explanation, Kind, ObjectSource, Outcome, Step, Verdict

_MOST_SOURCES = 4  # sources printed per decision; all twenty services that share a port would not make it clearer
_FEWEST_ALIKE = 2  # decisions that `N decisions as above` replaces: for one, the phrase would not be shorter
_MANY = ("Service", "AuthorizationPolicy")


def lines(explanation: Explanation) -> Iterator[str]:
    outcomes = explanation.outcomes
    shared = _shared(outcomes)
    for step in outcomes[0].steps[:shared]:
        yield line(step)
    for outcome in outcomes:
        indent = ""
        if len(outcomes) > 1:
            yield f"{100 * outcome.odds:.3g} % of requests:"
            indent = "  "
        alike = _alike(outcomes[0], outcome, shared + 1) if outcome is not outcomes[0] else 0
        for position, step in enumerate(outcome.steps[shared:]):
            if alike and position == 1:
                yield f"{indent}… {alike} decisions as above"
            if not 0 < position <= alike:
                yield f"{indent}{line(step)}"
        yield f"{indent}→ {verdict(outcome.verdict)}"


def line(step: Step) -> str:
    return f"{step.proxy or '-'}: {step.stage}: {step.what}{_listed(step.sources)}"


def verdict(result: Verdict) -> str:
    status = f" {result.status}" if result.status else ""
    grpc = f" (gRPC status {result.grpc_status})" if result.grpc_status else ""
    late = f" after {result.delay:g} s" if result.delay else ""
    more = ", ".join(part for part in (result.flags, result.detail) if part)
    text = f"{result.kind}{status}{grpc}{late}: {result.why}"
    if result.kind is Kind.DELIVERED and result.path:
        text = f"{text} as {result.method} {result.host}{result.path}"
    text = f"{text} ({more})" if more else text
    text = f"{text}, provided that {result.provided}" if result.provided else text
    return f"{text}{_listed(result.sources)}"


def _listed(sources: tuple[ObjectSource, ...]) -> str:
    """Return the sources as text in brackets, "" if there are none. If there are more than `_MOST_SOURCES`, Services
    and AuthorizationPolicies are listed last, and only up to this limit; the rest is counted as `and N more`. An object
    with several rules can be several sources; among Services and AuthorizationPolicies, the first source of each object
    is listed before second sources of any object."""
    seen: set[tuple[str, str, str]] = set()
    kept: list[tuple[bool, ObjectSource]] = []
    others: list[tuple[bool, ObjectSource]] = []
    for source in sources:
        key = (source.kind, source.namespace, source.name)
        (kept if source.kind not in _MANY else others).append((key in seen, source))
        seen.add(key)
    if len(sources) > _MOST_SOURCES:
        others = sorted(others, key=lambda pair: pair[0])[: max(_MOST_SOURCES - len(kept), 0)]
        named = [source for _, source in (*kept, *others)]
    else:
        named = [*sources]
    more = len(sources) - len(named)
    return f"  [{'; '.join(map(str, named))}{f'; and {more} more' if more else ''}]" if named else ""


def _alike(first: Outcome, other: Outcome, start: int) -> int:
    """The number of successive decisions, from position `start` on, in which the outcome `other` differs from `first`
    only in names, such as that of the endpoint. 0 if the number is below `_FEWEST_ALIKE`: so few decisions are printed
    in full."""
    count = 0
    for one, another in zip(_nameless(first, start), _nameless(other, start), strict=False):
        if one != another:
            break
        count += 1
    return count if count >= _FEWEST_ALIKE else 0


def _nameless(outcome: Outcome, start: int) -> Iterator[Step]:
    """The decisions from `start` on, with the names of this outcome (cluster, server name, endpoints, proxy)
    replaced by `…`."""
    final_verdict = outcome.verdict
    names = [
        final_verdict.cluster,
        final_verdict.cluster.replace("|", "_."),
        *(endpoint for endpoint, _ in final_verdict.endpoints),
    ]
    names += dict.fromkeys(step.proxy for step in outcome.steps if step.proxy != outcome.steps[0].proxy)
    known = re.compile("|".join(re.escape(name) for name in sorted(filter(None, names), key=len, reverse=True)) or "$^")
    for step in outcome.steps[start:]:
        yield replace(step, what=known.sub("…", step.what), proxy=known.sub("…", step.proxy), about="")


def _shared(outcomes: tuple[Outcome, ...]) -> int:
    """The number of steps at the beginning that are equal in all outcomes."""
    first = outcomes[0].steps
    if len(outcomes) == 1:
        return len(first)
    shortest = min(len(outcome.steps) for outcome in outcomes)
    for position in range(shortest):
        if any(outcome.steps[position] != first[position] for outcome in outcomes):
            return position
    return shortest
