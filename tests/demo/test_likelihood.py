import random

import pytest

from weft.demo.likelihood import change_point, split_probability


def test_the_expected_split_is_as_likely_as_can_be():
    assert split_probability(50, 500, 0.1) == pytest.approx(1.0)


def test_agrees_with_small_cases_counted_by_hand():
    assert split_probability(0, 4, 0.5) == pytest.approx(2 / 16)
    assert split_probability(1, 2, 0.5) == pytest.approx(1.0)
    assert split_probability(3, 3, 0.1) == pytest.approx(0.001)


def test_a_wrong_split_is_improbable_and_a_right_one_is_not():
    assert split_probability(62, 500, 0.1) > 1e-6  # 12.4 %: chance
    assert split_probability(250, 500, 0.1) < 1e-6
    assert split_probability(0, 500, 0.1) < 1e-6


def test_a_share_of_all_or_nothing_allows_no_exception():
    assert split_probability(0, 10, 0.0) == 1.0
    assert split_probability(1, 10, 0.0) == 0.0


def test_rejects_an_impossible_count():
    with pytest.raises(ValueError, match="7 of 5"):
        split_probability(7, 5, 0.5)


def test_finds_the_moment_a_split_changed():
    chance = random.Random(7)
    answers = [(moment / 100, chance.random() < (0.1 if moment < 300 else 0.5)) for moment in range(1000)]
    begun, certain = change_point(answers, before=0.1, after=0.5)
    assert 2.7 < begun < 3.3
    assert begun < certain < 4.5


def test_sees_no_change_where_there_is_none():
    chance = random.Random(7)
    assert change_point([(0.0, chance.random() < 0.1) for _ in range(2000)], before=0.1, after=0.5) is None
