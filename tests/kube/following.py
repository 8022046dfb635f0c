"""What a reflector tells, gathered by a test: the objects as they are, every batch, every problem."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import msgspec

from weft.kube.client import Client
from weft.kube.config import load
from weft.kube.reflector import WatchTiming, reflect
from weft.kube.resource import CONFIG_MAPS

QUICK = WatchTiming(inactivity=2.0, absent=0.3, first_delay=0.05, most_delay=0.4, steady=2.0)


class ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


class Following:
    def __init__(self):
        self.objects = {}
        self.batches = []
        self.problems = []
        self._changed = asyncio.Event()

    @property
    def gone(self):
        return [event.name for batch in self.batches for event in batch if event.object is None]

    async def follow(self, *arguments, **options):
        async for batch in reflect(*arguments, on_problem=self._met, **options):
            self.batches.append(batch)
            for event in batch:
                if event.object is None:
                    self.objects.pop(event.name, None)
                else:
                    self.objects[event.name] = event.object
            self._changed.set()

    async def until(self, true, seconds=60.0):
        """Waits for what is told, for no other time than that takes."""
        async with asyncio.timeout(seconds):
            while not true(self):
                self._changed.clear()
                await self._changed.wait()

    def _met(self, problem):
        self.problems.append(problem)
        self._changed.set()


@asynccontextmanager
async def following(client, resource=CONFIG_MAPS, type_=ConfigMap, *, timing=QUICK, **options):
    """Begins when the first batch is there."""
    found = Following()
    task = asyncio.create_task(found.follow(client, resource, type_, timing=timing, **options))
    try:
        await found.until(lambda told: told.batches or told.problems or task.done())
        yield found
        assert not task.done(), "it never ends by itself"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def connected(api_server, **changes):
    """A client as administrator."""
    connection = msgspec.structs.replace(load(api_server.kubeconfig), **changes)
    async with Client(connection) as client:
        yield client


def config_map(namespace, name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, "data": data}


async def put(client, namespace, name, **data):
    return await client.apply(config_map(namespace, name, **data), manager="test", force=True)
