import asyncio
import itertools
import time

import pytest

import eventually as module
from eventually import eventually, eventually_blocking


async def test_returns_the_first_value_that_holds():
    numbers = itertools.count()
    assert await eventually(lambda: next(numbers), every=0) == 1
    assert await eventually(lambda: next(numbers), lambda number: number > 5, every=0) == 6
    assert eventually_blocking(lambda: next(numbers), lambda number: number > 8, every=0) == 9


async def test_a_check_may_be_a_coroutine_function():
    numbers = itertools.count()

    async def check():
        await asyncio.sleep(0)
        return next(numbers)

    assert await eventually(check, lambda number: number == 3, every=0) == 3


async def test_shows_what_was_waited_for_and_the_last_value():
    with pytest.raises(AssertionError, match=r"not within 0\.01 s: .*lambda: 0, .* \(last value: 0\)"):
        await eventually(lambda: 0, limit=0.01)
    with pytest.raises(AssertionError, match=r"not within 0\.01 s: two pods \(last value: 1\)"):
        eventually_blocking(lambda: 1, lambda pods: pods == 2, limit=0.01, what="two pods")


def refused():
    raise ConnectionRefusedError("port 80")


async def test_shows_the_last_error_of_those_that_are_retried():
    message = "refused .last error: ConnectionRefusedError: port 80"
    with pytest.raises(AssertionError, match=message) as blocking:
        eventually_blocking(refused, limit=0.01, retry=OSError)
    assert isinstance(blocking.value.__cause__, ConnectionRefusedError)
    with pytest.raises(AssertionError, match=message) as awaited:
        await eventually(refused, limit=0.01, retry=OSError)
    assert isinstance(awaited.value.__cause__, ConnectionRefusedError)


async def test_other_errors_end_the_wait_at_once():
    with pytest.raises(ConnectionRefusedError):
        await eventually(refused, retry=ValueError)
    with pytest.raises(ConnectionRefusedError):
        eventually_blocking(refused)

    def asserts():
        raise AssertionError("at every look")

    with pytest.raises(AssertionError, match="at every look"):
        eventually_blocking(asserts)


def test_assertions_are_retried_if_wanted():
    numbers = itertools.count()

    def check():
        assert next(numbers) == 4
        return "four"

    assert eventually_blocking(check, every=0, retry=AssertionError) == "four"


async def test_a_check_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(module, "_LAST_LOOK", 0.01)
    with pytest.raises(AssertionError, match=r"Event\.wait .the last look has not ended"):
        await eventually(asyncio.Event().wait, limit=0.01)


async def test_a_timeout_of_the_check_itself_is_its_own_error():
    with pytest.raises(TimeoutError, match="its own"):
        await eventually(timed_out)


async def timed_out():
    raise TimeoutError("its own")


def test_after_a_stall_longer_than_the_limit_there_is_one_more_look():
    begun = time.monotonic()
    looks = []

    def check():
        looks.append(1)
        if len(looks) == 1:
            time.sleep(0.05)
        return len(looks) == 2

    assert eventually_blocking(check, limit=0.01)
    assert time.monotonic() - begun < 30
