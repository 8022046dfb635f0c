"""Compares the expected result of a request with the predicted one. Returns the differences as text. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from weft.explain.decision import Explanation, Kind, Verdict

_REACHED = (Kind.DELIVERED, Kind.PASSED_ON)


class Expected(StrEnum):
    ALLOWED = "allowed"  # the request reaches an endpoint
    DENIED = "denied"  # a policy, a rejected token or a failed TLS handshake stops the request
    ANSWERED = "answered"  # a proxy responds itself: a redirect, a fault, no such route
    FAILED = "failed"  # no endpoint can be reached


class Expectation(msgspec.Struct, frozen=True):
    """The result that a test expects of a request. Empty fields are not compared. `workload`: the receiver, as a
    workload, a pod, or an app's name. `path`: the path that the receiver gets. `odds`: the percentage of requests for
    which the other fields must hold."""

    verdict: Expected | None = None
    status: int = 0
    workload: str = ""  # the receiver: a workload, a pod, or an app's name
    subset: str = ""
    path: str = ""  # the path that the workload gets
    odds: float = 100.0


def differences(expectation: Expectation, explanation: Explanation) -> Iterator[str]:
    """Yields each difference between the expected and the predicted result, as text; nothing if they agree."""
    met = sum(outcome.odds for outcome in explanation.outcomes if not _wrong(expectation, outcome.verdict))
    if abs(100 * met - expectation.odds) < 0.05:
        return
    if expectation.odds == 100:
        odds: dict[str, float] = {}  # message -> odds: outcomes with the same difference are reported once
        for outcome in explanation.outcomes:
            for word in _wrong(expectation, outcome.verdict):
                odds[word] = odds.get(word, 0.0) + outcome.odds
        for word, share in odds.items():
            yield word if share > 0.9999 else f"{word} for {100 * share:.3g} % of requests"
    else:
        yield f"expected for {expectation.odds:g} % of requests, but true for {100 * met:.3g} %"


def _wrong(expectation: Expectation, verdict: Verdict) -> list[str]:
    mismatches = []
    if expectation.verdict is not None and not _is(expectation.verdict, verdict):
        mismatches.append(f"expected to be {expectation.verdict}, but it is {verdict.kind}: {verdict.why}")
    pairs = (
        ("status", expectation.status, verdict.status),
        ("subset", expectation.subset, _subset(verdict.cluster)),
        ("path", expectation.path, verdict.path),
    )
    mismatches += (
        f"expected {name} {want}, but it is {got or 'none'}" for name, want, got in pairs if want and want != got
    )
    if expectation.workload and not _is_of(expectation.workload, verdict.workload):
        mismatches.append(
            f"expected to reach {expectation.workload}, but it reaches {verdict.workload or 'no workload'}"
        )
    return mismatches


def _is(expected: Expected, verdict: Verdict) -> bool:
    match expected:
        case Expected.ALLOWED:
            return verdict.kind in _REACHED
        case Expected.DENIED:
            return verdict.kind in (Kind.DENIED, Kind.CLOSED)
        case Expected.ANSWERED:
            return verdict.kind is Kind.ANSWERED
        case Expected.FAILED:
            return verdict.kind is Kind.FAILED


def _is_of(wanted: str, pod: str) -> bool:
    """Whether `wanted` names the pod or its workload: `payments-v2` is the workload of the pod `payments-v2-0.shop`."""
    name = pod.rpartition(".")[0]
    return wanted in (pod, name) or name.rpartition("-")[0] == wanted or name.rsplit("-", 2)[0] == wanted


def _subset(cluster: str) -> str:
    """The subset in the name of a cluster; "" if it has none. The prefix `~`, which marks a cluster of a headless
    service for which the proxy chooses the pod, is removed."""
    return cluster.split("|")[2].removeprefix("~") if cluster.count("|") == 3 else ""
