from weft.explain.decision import DecisionStage, Kind, Unsure
from weft.explain.walk import every


def test_all_paths_are_walked_and_the_odds_add_up():
    def journey(walk):
        first = walk.choose([(80, "a"), (20, "b")])
        second = walk.choose([(1, "x"), (1, "y"), (0, "never")]) if first == "a" else "only"
        walk.tell(DecisionStage.ROUTE, f"{first}{second}")
        return walk.end(Kind.DELIVERED, first + second)

    found = [(outcome.verdict.why, outcome.odds) for outcome in every(journey).outcomes]
    assert sorted(found) == [("ax", 0.4), ("ay", 0.4), ("bonly", 0.2)]
    assert found[0][1] >= found[-1][1]


def test_paths_with_equal_verdicts_are_one_outcome():
    def journey(walk):
        chosen = walk.choose([(2, "a"), (1, "b"), (1, "c")])
        walk.tell(DecisionStage.ROUTE, chosen)
        return walk.end(Kind.DELIVERED, "same" if chosen in "ac" else "other")

    found = every(journey)
    assert [(each.odds, each.verdict.why, each.steps[0].what) for each in found.outcomes] == [
        (0.75, "same", "a"),
        (0.25, "other", "b"),
    ]


def test_unsure_ends_in_an_unknown_verdict_with_the_steps_before():
    def journey(walk):
        walk.tell(DecisionStage.ROUTE, "so far")
        walk.cluster = "c"
        raise Unsure("nobody knows")

    (outcome,) = every(journey).outcomes
    assert (outcome.verdict.kind, outcome.verdict.why, outcome.verdict.cluster) == (Kind.UNKNOWN, "nobody knows", "c")
    assert len(outcome.steps) == 1


def test_too_many_paths_add_an_unknown_outcome():
    def journey(walk):
        chosen = [walk.choose([(1, 0), (1, 1)]) for _ in range(10)]
        return walk.end(Kind.DELIVERED, str(chosen))

    outcomes = every(journey).outcomes
    assert len(outcomes) == 129 and abs(sum(outcome.odds for outcome in outcomes) - 1) < 1e-9
    assert outcomes[0].verdict.kind is Kind.UNKNOWN


def test_a_delay_is_part_of_the_flags():
    def journey(walk):
        walk.delay = 2.0
        return walk.end(Kind.FAILED, "", status=503, flags="UH")

    assert every(journey).verdict.flags == "DI,UH"


def test_choosing_from_nothing_is_unknown():
    assert every(lambda walk: walk.choose([(0, None)])).verdict.kind is Kind.UNKNOWN
