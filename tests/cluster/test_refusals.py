"""Replicas that share the rejections of their proxies, with a real API server."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from cluster.kubernetes import unique
from eventually import eventually
from weft.base.problem import Problem, Where
from weft.cluster import refusals as room
from weft.cluster.refusals import Refusals
from weft.install.names import InstallationNames
from weft.kube.error import ApiError
from weft.kube.resource import CONFIG_MAPS

BAD = Problem(Where(object="VirtualService shop/web"), "Envoy rejects it")
WORSE = Problem(Where(object="DestinationRule shop/web"), "Envoy rejects that")


@pytest.fixture
def names(api_server):
    return InstallationNames("default", api_server.make_namespace(unique("root")))


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(room, "LOOK_SECONDS", 0.05)


class Plane:
    def __init__(self):
        self.own, self.noted = (), {}

    def refusals(self):
        return self.own

    def note(self, topic, problems):
        self.noted[topic] = tuple(problems)

    @property
    def told(self):
        return {each for problems in self.noted.values() for each in problems}


@contextlib.asynccontextmanager
async def replica(client, names, name):
    plane = Plane()
    running = asyncio.create_task(Refusals(client, names, name, plane).run())
    try:
        yield plane
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def kept(client, names):
    return (await client.get(CONFIG_MAPS, names.refusals, namespace=names.namespace)).get("data") or {}


async def test_rejections_at_one_replica_are_problems_at_the_others_until_corrected(client, names):
    async with replica(client, names, "one") as one, replica(client, names, "two") as two:
        one.own, two.own = (BAD,), (WORSE,)
        await eventually(lambda: (one.told, two.told) == ({WORSE}, {BAD}))
        assert (await kept(client, names)).keys() == {"one", "two"}
        async with replica(client, names, "late") as late:
            await eventually(lambda: late.told == {BAD, WORSE})
        one.own = ()
        await eventually(lambda: two.told == set() and one.told == {WORSE})
        assert (await kept(client, names)).keys() == {"two"}


async def test_no_entry_is_written_without_rejections(client, names):
    async with replica(client, names, "one") as one:
        looked = 0

        def look():
            nonlocal looked
            looked += 1
            return ()

        one.refusals = look
        await eventually(lambda: looked > 3)
    with pytest.raises(ApiError) as caught:
        await kept(client, names)
    assert caught.value.not_found


async def test_a_replica_that_stops_writing_has_no_rejections(client, names, monkeypatch):
    monkeypatch.setattr(room, "REPEAT_SECONDS", 0.2)
    async with replica(client, names, "dies") as dies:
        dies.own = (BAD,)
        async with replica(client, names, "stays") as stays:
            await eventually(lambda: stays.told == {BAD})
    monkeypatch.setattr(room, "FORGET_SECONDS", 8.0)
    async with replica(client, names, "lives") as lives, replica(client, names, "stays") as stays:
        lives.own = (WORSE,)
        await eventually(lambda: stays.told == {BAD, WORSE})
        await eventually(lambda: stays.told == {WORSE})
        await eventually(lambda: kept(client, names), lambda value: value.keys() == {"lives"})
        assert stays.told == {WORSE}


async def test_entries_of_stopped_replicas_are_removed(client, names, monkeypatch):
    """Neither entries of replicas without rejections at the end, nor of replicas that were killed, are left."""
    monkeypatch.setattr(room, "FORGET_SECONDS", 0.5)
    monkeypatch.setattr(room, "REPEAT_SECONDS", 0.1)

    async def managers():
        found = await client.get(CONFIG_MAPS, names.refusals, namespace=names.namespace)
        return {each["manager"] for each in found["metadata"]["managedFields"]}

    async with replica(client, names, "stays") as stays:
        stays.own = (WORSE,)
        for name in ("mended", "dies"):
            async with replica(client, names, name) as other:
                other.own = (BAD,)
                await eventually(lambda: stays.told == {BAD})
                if name == "mended":
                    other.own = ()
                    await eventually(lambda: not stays.told)
        await eventually(lambda: kept(client, names), lambda value: value.keys() == {"stays"})
        assert not {"weft-mended", "weft-dies"} & await managers()
        labels = (await client.get(CONFIG_MAPS, names.refusals, namespace=names.namespace))["metadata"]["labels"]
        assert labels == names.labels


async def test_malformed_and_too_many_entries_of_replicas_do_no_harm(client, names, monkeypatch):
    monkeypatch.setattr(room, "MOST", 3)
    manifest = {"metadata": {"name": names.refusals}, "data": {"broken": "{", "other": "[1]"}}
    await client.create(CONFIG_MAPS, manifest, namespace=names.namespace)
    async with replica(client, names, "one") as one, replica(client, names, "two") as two:
        one.own = tuple(Problem(Where(object=f"VirtualService shop/{number}"), "x" * 5_000) for number in range(9))
        await eventually(lambda: len(two.told) == 3)
        assert {len(each.what) for each in two.told} == {1_000}
