from bench.ways import Cost, added, calm, middle


def _cost(cpu, waited):
    return Cost(p50=0.0, p99=0.0, cpu=cpu, waited=waited, rate=0.0)


ROUNDS = [
    {"a": _cost(1.0, 0.1), "b": _cost(4.0, 0.1)},
    {"a": _cost(2.0, 0.2), "b": _cost(3.0, 9.0)},
    {"a": _cost(9.0, 5.0), "b": _cost(5.0, 0.2)},
]


def test_figures_are_of_the_calmer_half_of_a_ways_own_rounds():
    assert calm(ROUNDS, "a", "cpu") == 1.5
    assert calm(ROUNDS, "b", "cpu") == 4.5
    assert middle(ROUNDS, "a", "cpu") == 2.0


def test_a_difference_is_taken_round_by_round_where_both_were_calm():
    assert added(ROUNDS, "b", "a", "cpu") == -0.5
