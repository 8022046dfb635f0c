import asyncio
import contextlib

from eventually import eventually
from weft.api.document import Change
from weft.cluster.named_objects import NamedObjects
from weft.model.names import ObjectKey


class Told:
    """In the place of what watches: says what it is told to, and remembers what was wanted."""

    def __init__(self):
        self.wanted, self.closed, self.problems = [], False, ()
        self.arriving = asyncio.Queue()

    def want(self, names):
        self.wanted.append(tuple(names))

    async def changes(self):
        return await self.arriving.get()

    async def close(self):
        self.closed = True


def change(name):
    return Change(ObjectKey("Secret", "shop", name), None)


@contextlib.asynccontextmanager
async def running(objects):
    task = asyncio.create_task(objects.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_many_changes_are_one_look_and_each_later_one_another():
    told, names = Told(), [("shop", "a")]
    objects = NamedObjects(told, lambda: names, lambda changes: None, lambda problems: None)
    async with running(objects):
        for _ in range(5):
            objects.look()
        await eventually(lambda: told.wanted == [(("shop", "a"),)])
        names.append(("shop", "b"))
        objects.look()
        await eventually(lambda: told.wanted[1:] == [(("shop", "a"), ("shop", "b"))])
    assert told.closed


async def test_a_look_that_fails_is_said_and_the_next_is_taken(caplog):
    told, names = Told(), []

    def wanted():
        return (names[0],)

    objects = NamedObjects(told, wanted, lambda changes: None, lambda problems: None)
    async with running(objects):
        objects.look()
        await eventually(lambda: "cannot compute which objects are named" in caplog.text)
        names.append(("shop", "a"))
        objects.look()
        await eventually(lambda: told.wanted == [(("shop", "a"),)])


async def test_a_batch_that_cannot_be_taken_in_is_said_and_the_next_is(caplog):
    told, taken, noted = Told(), [], []

    def take(changes):
        if changes[0].key.name == "bad":
            raise ValueError("no")
        taken.append(changes[0].key.name)

    async with running(NamedObjects(told, tuple, take, noted.append)):
        for name in ("bad", "good"):
            told.arriving.put_nowait((change(name),))
        told.arriving.put_nowait(())  # nothing of them has changed, but what cannot be read has
        await eventually(lambda: len(noted) == 3)
    assert taken == ["good"]
    assert "cannot apply Secret shop/bad" in caplog.text


async def test_only_changes_of_objects_that_may_name_others_are_a_look():
    told = Told()
    objects = NamedObjects(told, lambda: [("shop", "a")], lambda changes: None, lambda problems: None)
    on_change = objects.look_if(lambda key: key.kind == "Gateway")
    async with running(objects):
        on_change(frozenset({ObjectKey("Service", "shop", "a")}))
        await asyncio.sleep(0.2)
        assert told.wanted == []
        on_change(frozenset({ObjectKey("Service", "shop", "a"), ObjectKey("Gateway", "shop", "a")}))
        await eventually(lambda: told.wanted == [(("shop", "a"),)])
