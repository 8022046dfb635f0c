"""The property: of what is generated, real Envoys do with every request what `explain` said, and `explain` says no more
than may happen. Every disagreement is a defect of `explain`'s.

`WEFT_EXPLAIN_CASES` says how many requests; `make test-explain` takes ten thousand. The same number is the same requests
again; `WEFT_EXPLAIN_SEED` asks for others.
"""

import dataclasses
import os

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from explain.asked import TCP_PORT, Asked, Case
from explain.chance import ISTIO, document
from explain.difference import disagreement
from explain.meshes import cases
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
PATHS = (PathNormalization.BASE, *(each for each in PathNormalization if each is not PathNormalization.BASE))


def generated():
    found = []

    @seed(SEED)
    @settings(
        max_examples=-(-CASES // PER_SERVICE),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(PER_SERVICE))
    def collect(case):
        found.append(case)

    collect()
    return found


@pytest.mark.timeout(1800)
async def test_envoys_do_what_explain_says():
    services, told = generated(), []
    for number, start in enumerate(range(0, len(services), PER_BATCH)):
        normalization = PATHS[number % len(PATHS)]
        policy = OutboundPolicy.REGISTRY_ONLY if number % 2 else OutboundPolicy.ALLOW_ANY
        wanted = msgspec.structs.replace(PATIENT, path_normalization=normalization, outbound_policy=policy)
        told += await compare(services[start : start + PER_BATCH], wanted)
    assert len(told) == len(services) * PER_SERVICE >= CASES
    wrong = [described(each) for each in told if each.disagreement]
    assert not wrong, f"{len(wrong)} of {len(told)}, among them:\n\n" + "\n\n".join(wrong[:MOST_SHOWN])
    kinds = {outcome.verdict.kind for each in told for outcome in each.explanation.outcomes}
    assert kinds >= {Kind.DELIVERED, Kind.ANSWERED, Kind.DENIED, Kind.FAILED, Kind.CLOSED} and Kind.UNKNOWN not in kinds


async def test_a_route_to_another_headless_service_reaches_its_pods():
    """Whom the caller named is a service's address, and none of theirs."""
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
    assert len(reached) == 2  # with a proxy, and without


async def test_a_wrong_word_would_be_noticed():
    """The rig itself can fail: other resources than those that were explained give other answers."""
    (told,) = await compare([Case([], [Asked(path="/a")])])
    assert not told.disagreement
    for field, wrong in (("kind", Kind.DENIED), ("path", "/b"), ("cluster", "other"), ("route", "other")):
        assert _differs(told, field, wrong), field


async def test_an_outcome_too_many_would_be_noticed():
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
    """All that is needed to see it again."""
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
