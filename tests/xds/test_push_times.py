from __future__ import annotations

import pytest

from weft.xds.push_times import EXACT, KEPT, PushTimes


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_returns_the_time_of_each_push(clock):
    times = PushTimes(clock)
    for number in (1, 2, 3):
        times.note(number)
        clock.now += 10
    assert [times.at(number) for number in (1, 2, 3)] == [1_000, 1_010, 1_020]


def test_pushes_that_follow_each_other_at_once_share_a_time(clock):
    times = PushTimes(clock)
    for number in range(1, 6):
        times.note(number)
        clock.now += EXACT / 10
    assert {times.at(number) for number in range(1, 6)} == {1_000}


def test_the_time_of_a_future_push_is_the_current_time(clock):
    times = PushTimes(clock)
    times.note(1)
    clock.now += 50
    assert times.at(2) == clock.now
    assert PushTimes(clock).at(0) == clock.now


def test_stays_bounded_and_forgets_exactness_not_pushes(clock):
    times = PushTimes(clock)
    for number in range(1, 20 * KEPT):
        times.note(number)
        clock.now += 1
    assert len(times._times) <= KEPT
    for number in (1, 100, KEPT, 19 * KEPT, 20 * KEPT - 1):
        actual, age = 999 + number, clock.now - (999 + number)
        assert actual - max(1, age) <= times.at(number) <= actual
