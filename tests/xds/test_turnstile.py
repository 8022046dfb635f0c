import asyncio

from weft.xds.turnstile import Turnstile


async def test_the_number_of_tasks_is_limited_and_the_next_enters_when_one_leaves():
    turnstile, leave = Turnstile(2, 60), [asyncio.Event() for _ in range(3)]
    inside = []

    async def visit(number):
        async with turnstile.inside():
            inside.append(number)
            await leave[number].wait()

    visits = [asyncio.create_task(visit(number)) for number in range(3)]
    await asyncio.sleep(0)
    assert inside == [0, 1]
    leave[1].set()
    await visits[1]
    await asyncio.sleep(0)
    assert inside == [0, 1, 2]
    for each in leave:
        each.set()
    await asyncio.gather(*visits)


async def test_a_slow_task_blocks_no_other_and_releases_its_place_once():
    turnstile = Turnstile(1, 0.01)
    async with asyncio.timeout(30), turnstile.inside(), turnstile.inside():
        pass
    stays = Turnstile(1, 60)
    stays._places = turnstile._places
    async with stays.inside():
        waiting = asyncio.create_task(stays._places.acquire())
        await asyncio.sleep(0)
        assert not waiting.done()
    assert await waiting


async def test_a_task_that_is_cancelled_or_fails_releases_its_place():
    turnstile = Turnstile(1, 60)

    async def visit():
        async with turnstile.inside():
            await asyncio.Event().wait()

    first, second = asyncio.create_task(visit()), asyncio.create_task(visit())
    await asyncio.sleep(0)
    second.cancel()
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    async with asyncio.timeout(30), turnstile.inside():
        pass
