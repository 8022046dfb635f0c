"""The property: real Envoys treat every generated request as `explain` predicts, and `explain` predicts no outcome
that cannot happen. Every disagreement is a defect of `explain`.

`WEFT_EXPLAIN_CASES` sets the number of requests; `make test-explain` uses ten thousand. The same number gives the
same requests; `WEFT_EXPLAIN_SEED` selects others.
"""

import dataclasses
import os

import msgspec
import pytest

from explain.asked import TCP_PORT, Asked, Case
from explain.chance import ISTIO, document, drawn
from explain.difference import disagreement
from explain.meshes import cases
from explain.odds import surprise
from explain.rig import PATIENT, compare
from explain.ways import most_ways, too_many
from weft.explain.decision import Kind
from weft.explain.request import Speaks
from weft.explain.text import lines
from weft.model.settings import PathNormalization
from weft.model.sidecar import OutboundPolicy

CASES = int(os.environ.get("WEFT_EXPLAIN_CASES", "600"))
SEED = int(os.environ.get("WEFT_EXPLAIN_SEED", "1"))
PER_SERVICE, PER_BATCH = 20, 100
MOST_SHOWN = 5
MOST_SURPRISE = 6  # standard deviations
PATHS = (PathNormalization.BASE, *(each for each in PathNormalization if each is not PathNormalization.BASE))


@pytest.mark.timeout(1800)
async def test_envoy_behaves_as_explained():
    services, told = drawn(cases(PER_SERVICE), -(-CASES // PER_SERVICE), SEED), []
    for number, start in enumerate(range(0, len(services), PER_BATCH)):
        normalization = PATHS[number % len(PATHS)]
        policy = OutboundPolicy.REGISTRY_ONLY if number % 2 else OutboundPolicy.ALLOW_ANY
        wanted = msgspec.structs.replace(PATIENT, path_normalization=normalization, outbound_policy=policy)
        told += await compare(services[start : start + PER_BATCH], wanted)
    assert len(told) == len(services) * PER_SERVICE >= CASES
    wrong = [described(each) for each in told if each.disagreement]
    assert not wrong, f"{len(wrong)} of {len(told)}, among them:\n\n" + "\n\n".join(wrong[:MOST_SHOWN])
    kinds = {outcome.verdict.kind for each in told for outcome in each.explanation.outcomes}
    assert surprise(told) < MOST_SURPRISE
    assert kinds >= {Kind.DELIVERED, Kind.ANSWERED, Kind.DENIED, Kind.FAILED, Kind.CLOSED} and Kind.UNKNOWN not in kinds


async def test_a_route_to_another_headless_service_reaches_its_pods():
    """The caller's original destination is the address of another service, none of the pods' addresses."""
    to_deep = {"hosts": ["SERVICE"], "http": [{"route": [{"destination": {"host": "deep", "port": {"number": 80}}}]}]}
    by_bytes = {
        "match": [{"port": TCP_PORT}],
        "route": [{"destination": {"host": "deep", "port": {"number": TCP_PORT}}}],
    }
    asked = [*(Asked(path="/a") for _ in range(20)), *(Asked(port=TCP_PORT, speaks=Speaks.BYTES) for _ in range(20))]
    told = await compare([Case([document(ISTIO, "VirtualService", to_deep | {"tcp": [by_bytes]})], asked)])
    assert not [described(each) for each in told if each.disagreement]
    assert all(each.answer.app is not None for each in told)
    reached = {each.answer.logged["host"].partition(":")[0] for each in told if each.answer.logged}
    assert len(reached) == 2  # one with a proxy, one without


async def test_an_invalid_request_does_not_affect_other_requests():
    """An empty TE is valid in HTTP/1, but not in HTTP/2, and requests share HTTP/2 connections between proxies."""
    asked = [Asked(path="/a", headers=[("TE", "")] if number % 10 == 0 else []) for number in range(200)]
    told = await compare([Case([], asked, alone=True)])
    assert not [described(each) for each in told if each.disagreement]
    assert {each.answer.status for each in told if each.asked.headers} == {502}
    assert all(each.answer.app for each in told if not each.asked.headers)


async def test_random_outcomes_occur_with_the_explained_odds():
    told = await compare([_by_chance(500)])
    assert not [described(each) for each in told if each.disagreement]
    assert surprise(told) < MOST_SURPRISE
    arrived = [each for each in told if each.answer.logged["host"]]
    to_both = [each for each in arrived if "|all|" in each.answer.logged["cluster"]]
    (shares,) = {
        outcome.verdict.endpoints
        for each in to_both
        for outcome in each.explanation.outcomes
        if "|all|" in outcome.verdict.cluster
    }
    assert len(to_both) > 150 and len(shares) == 2
    for place, share in shares:
        met = sum(each.answer.logged["host"] == place for each in to_both) / len(to_both)
        assert abs(met - share) < MOST_SURPRISE * (share * (1 - share) / len(to_both)) ** 0.5


async def test_the_comparison_detects_wrong_odds():
    told = await compare([_by_chance(200)])
    outcomes = told[0].explanation.outcomes
    turned = [outcome.odds for outcome in reversed(outcomes)]
    alike = [1 / len(outcomes)] * len(outcomes)
    for odds in (turned, alike):
        wrong = tuple(msgspec.structs.replace(each, odds=one) for each, one in zip(outcomes, odds, strict=True))
        said = msgspec.structs.replace(told[0].explanation, outcomes=wrong)
        assert surprise([dataclasses.replace(each, explanation=said) for each in told]) > MOST_SURPRISE


def _by_chance(number):
    """A case with random outcomes: a weighted route to one of two destinations or both, and a fault, which may also
    delay."""
    to = [
        {"destination": {"host": "SERVICE", "subset": name, "port": {"number": 80}}, "weight": weight}
        for weight, name in ((10, "v1"), (30, "v2"), (60, "all"))
    ]
    rare = {"percentage": {"value": 20}}
    fault = {"delay": rare | {"fixedDelay": "0.001s"}, "abort": rare | {"httpStatus": 418}}
    routing = {"hosts": ["SERVICE"], "http": [{"route": to, "fault": fault}]}
    subsets = [{"name": name, "labels": {"version": name}} for name in ("v1", "v2")]
    rule = {"host": "SERVICE", "subsets": [*subsets, {"name": "all"}]}
    rule["trafficPolicy"] = {"loadBalancer": {"simple": "RANDOM"}}
    documents = [document(ISTIO, "VirtualService", routing), document(ISTIO, "DestinationRule", rule)]
    return Case(documents, [Asked(path="/a") for _ in range(number)])


async def test_the_comparison_detects_a_wrong_verdict():
    """The comparison itself can fail: a verdict that differs from the observed result is a disagreement."""
    (told,) = await compare([Case([], [Asked(path="/a")])])
    assert not told.disagreement
    for field, wrong in (("kind", Kind.DENIED), ("path", "/b"), ("cluster", "other"), ("route", "other")):
        assert _differs(told, field, wrong), field


async def test_the_comparison_detects_an_extra_outcome():
    (told,) = await compare([Case([], [Asked(path="/a")], alone=True)])
    (only,) = told.explanation.outcomes
    assert not told.disagreement and most_ways(told) == 1
    half, never, part = (msgspec.structs.replace(only, odds=odds) for odds in (0.5, 0.0, 0.9))
    other = msgspec.structs.replace(half, verdict=msgspec.structs.replace(only.verdict, cluster="other"))
    for outcomes, why in (
        ((half, other), "2 outcomes are said, and there are 1 ways at most"),
        ((half, half), "one is said twice"),
        ((only, never), "one never happens"),
        ((part,), "the odds add up to 0.9"),
    ):
        said = msgspec.structs.replace(told.explanation, outcomes=outcomes)
        assert why in too_many(dataclasses.replace(told, explanation=said))


def _differs(told, field, wrong):
    outcomes = tuple(
        msgspec.structs.replace(each, verdict=msgspec.structs.replace(each.verdict, **{field: wrong}))
        for each in told.explanation.outcomes
    )
    said = msgspec.structs.replace(told.explanation, outcomes=outcomes)
    return bool(disagreement(dataclasses.replace(told, explanation=said)))


def described(told):
    """Everything that is needed to reproduce a disagreement."""
    request = told.request
    return "\n".join(
        (
            told.disagreement,
            f"{request.caller} → {request.address}:{request.port} {request.method} {request.host}{request.path}",
            *(f"  {name}: {value}" for name, value in request.headers),
            *lines(told.explanation),
            f"{told.answer}",
            *map(str, told.case.documents),
        )
    )
