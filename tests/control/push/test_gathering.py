import asyncio

from eventually import eventually
from weft.control.push.gathering import Gathering, Timing, safely
from weft.mesh.touched import Touched


class Taker:
    def __init__(self, **timing):
        self.taken, self.endpoints = [], []
        self.gathering = Gathering(
            Timing(**timing),
            lambda: self.taken.append(self.gathering.take()),
            lambda: self.endpoints.append(self.gathering.take_endpoints()),
        )


def hosts(*names):
    return Touched(hosts=frozenset(names))


async def test_changes_that_follow_one_another_are_one_push():
    taker = Taker(quiet=0.02, most=10)
    for name in ("a", "b"):
        taker.gathering.add(hosts(name))
        await asyncio.sleep(0)
    assert taker.gathering.pending
    await taker.gathering.done()
    assert [touched.hosts for touched, _ in taker.taken] == [{"a", "b"}]
    assert not taker.gathering.pending


async def test_changes_that_never_end_are_pushed_all_the_same():
    taker = Taker(quiet=10, most=0.02)
    taker.gathering.add(hosts("a"))
    await taker.gathering.done()
    assert taker.taken


async def test_who_answers_waits_for_nothing_else_and_goes_along_with_what_is_due():
    taker = Taker(endpoints=0.0, quiet=10, most=10)
    taker.gathering.add(hosts("a"))
    taker.gathering.add(Touched(endpoints=frozenset({"b"})))
    await eventually(lambda: taker.endpoints, every=0)
    assert taker.endpoints == [{"b"}] and not taker.taken
    taker.gathering.add(Touched(endpoints=frozenset({"c"})))
    assert taker.gathering.take() == (hosts("a"), {"c"})
    assert not taker.gathering.pending


async def test_nobody_waits_for_what_was_given_up():
    taker = Taker(quiet=10, most=10)
    taker.gathering.add(hosts("a"))
    waiting = asyncio.create_task(taker.gathering.done())
    await asyncio.sleep(0)
    taker.gathering.close()
    await asyncio.wait_for(waiting, 5)


def test_a_step_that_fails_is_logged_and_stops_nobody(caplog):
    safely(lambda: 1 / 0)
    assert "a push failed" in caplog.text
