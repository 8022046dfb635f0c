import asyncio

from weft.control.push.gather import Gathered, GatherStep
from weft.control.push.schedule import PushTiming, Schedule, safely
from weft.mesh.touched import Touched


class Taker:
    """Gathers changes, and takes them when the schedule calls."""

    def __init__(self, **timing):
        self.taken, self.endpoints, self.answered = [], [], []
        self.gather = GatherStep()
        self.schedule = Schedule(PushTiming(**timing), self.take, self.take_endpoints, self.answer)

    def add(self, touched):
        self.schedule.add(self.gather.add(touched))

    def take(self):
        self.schedule.begin()
        self.taken.append(self.gather.take())
        return self.taken[-1]

    def take_endpoints(self):
        self.schedule.begin_endpoints()
        self.endpoints.append(self.gather.take_endpoints())

    def answer(self):
        self.schedule.begin_calls()
        self.answered.append(self.gather.take_calls())


def hosts(*names):
    return Touched(hosts=frozenset(names))


async def test_changes_that_follow_one_another_are_one_push():
    taker = Taker(quiet=0.02, most=10)
    for name in ("a", "b"):
        taker.add(hosts(name))
        await asyncio.sleep(0)
    assert taker.schedule.pending
    await taker.schedule.done()
    assert [gathered.touched.hosts for gathered in taker.taken] == [{"a", "b"}]
    assert not taker.schedule.pending


async def test_changes_that_never_end_are_pushed_after_the_longest_delay():
    taker = Taker(quiet=10, most=0.02)
    taker.add(hosts("a"))
    await taker.schedule.done()
    assert taker.taken


async def test_endpoints_wait_for_no_other_change_and_are_part_of_a_full_push():
    taker = Taker(endpoints=0.0, quiet=10, most=10)
    taker.add(hosts("a"))
    taker.add(Touched(endpoints=frozenset({"b"})))
    while not taker.endpoints:
        await asyncio.sleep(0)
    assert taker.endpoints == [{"b"}] and not taker.taken
    taker.add(Touched(endpoints=frozenset({"c"})))
    assert taker.take() == Gathered(hosts("a"), frozenset({"c"}))
    assert not taker.schedule.pending


async def test_no_waiter_is_left_after_close():
    taker = Taker(quiet=10, most=10)
    taker.add(hosts("a"))
    waiting = asyncio.create_task(taker.schedule.done())
    await asyncio.sleep(0)
    taker.schedule.close()
    await asyncio.wait_for(waiting, 5)


async def test_calls_of_one_turn_of_the_loop_are_released_together():
    taker = Taker()
    for address in ("10.96.0.1", "10.96.0.2"):
        taker.gather.add_calls("web", [address])
        taker.schedule.add_calls()
    assert not taker.answered
    await asyncio.sleep(0)
    assert taker.answered == [{"web": ["10.96.0.1", "10.96.0.2"]}]
    taker.schedule.add_calls()
    await asyncio.sleep(0)
    assert len(taker.answered) == 2


def test_a_push_that_fails_is_logged_and_stops_no_other(caplog):
    safely(lambda: 1 / 0)
    assert "a push failed" in caplog.text
