import asyncio
import contextlib

from eventually import eventually
from weft.api.document import Change
from weft.cluster.named_objects import NamedObjects
from weft.model.names import ObjectKey


class Told:
    """A stand-in for the watches: it returns what the test puts in, and records the wanted names."""

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


async def test_many_changes_at_once_cause_one_computation_and_later_ones_another():
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


async def test_a_failed_computation_of_names_is_logged_and_the_next_one_runs(caplog):
    told, names = Told(), []

    def wanted():
        return (names[0],)

    objects = NamedObjects(told, wanted, lambda changes: None, lambda problems: None)
    async with running(objects):
        objects.look()
        await eventually(lambda: "cannot compute which objects to watch" in caplog.text)
        names.append(("shop", "a"))
        objects.look()
        await eventually(lambda: told.wanted == [(("shop", "a"),)])


async def test_a_batch_that_cannot_be_applied_is_logged_and_the_next_is_applied(caplog):
    told, taken, noted = Told(), [], []

    def take(changes):
        if changes[0].key.name == "bad":
            raise ValueError("no")
        taken.append(changes[0].key.name)

    async with running(NamedObjects(told, tuple, take, noted.append)):
        for name in ("bad", "good"):
            told.arriving.put_nowait((change(name),))
        told.arriving.put_nowait(())  # no object has changed, but the problems of reading have
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
