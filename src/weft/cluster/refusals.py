"""What proxies refuse, told from replica to replica: a proxy is connected to one, and another may be the one who writes
what is wrong to the objects.

Each replica keeps its own refusals under its own name in one ConfigMap, and nothing while it has none; what stands
under the names of others is a problem here, too. Rule: who has something to tell repeats it, and who has not been heard
of for a while has nothing to tell any more; clocks are not compared.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from weft.base.problem import Problem
from weft.install.names import InstallationNames
from weft.kube.client import Client
from weft.kube.error import ApiError, KubeError
from weft.kube.reflector import reflect
from weft.kube.resource import CONFIG_MAPS

log = logging.getLogger("weft.cluster.refusals")

LOOK_SECONDS = 1.0
REPEAT_SECONDS = 20.0
FORGET_SECONDS = 65.0  # three repetitions that did not come
MOST = 100  # of one replica; a ConfigMap holds a megabyte, and a message says what matters in its beginning
_LONGEST = 1_000


class Plane(Protocol):
    """What is needed of the plane."""

    def refusals(self) -> tuple[Problem, ...]: ...

    def note(self, topic: str, problems: Iterable[Problem]) -> None: ...


class _Said(msgspec.Struct, frozen=True):
    number: int  # how often it has been said: what stands still is nobody's word any more
    problems: tuple[Problem, ...] = ()


class _ConfigMap(msgspec.Struct, frozen=True):
    data: dict[str, str] = {}


class Refusals:
    def __init__(self, client: Client, names: InstallationNames, replica: str, plane: Plane) -> None:
        self._client, self._names, self._replica, self._plane = client, names, replica, plane
        self._said = _Said(0)
        self._said_at = 0.0
        self._heard: dict[str, tuple[str, float]] = {}  # by replica: its words, and since when they are the same

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._tell())

    async def _follow(self) -> None:
        names = self._names
        fields = f"metadata.name={names.refusals}"
        async for batch in reflect(self._client, CONFIG_MAPS, _ConfigMap, namespace=names.namespace, fields=fields):
            for event in batch:
                self._hear(event.object.data if event.object is not None else {})

    def _hear(self, data: Mapping[str, str]) -> None:
        for replica in self._heard.keys() - data.keys():
            del self._heard[replica]
            self._note(replica, ())
        for replica, text in data.items():
            if replica == self._replica or self._heard.get(replica, ("", 0.0))[0] == text:
                continue
            self._heard[replica] = (text, time.monotonic())
            try:
                said = msgspec.json.decode(text, type=_Said)
            except (msgspec.MsgspecError, RecursionError, ValueError) as error:
                log.warning("what %s tells of refusals cannot be read: %s", replica, error)
                continue
            self._note(replica, said.problems[:MOST])

    def _note(self, replica: str, problems: Iterable[Problem]) -> None:
        self._plane.note(f"refused at {replica}", problems)

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._say()
                await self._forget()
            except ApiError as error:
                log.error("what proxies refuse cannot be told: %s", error)
                await asyncio.sleep(REPEAT_SECONDS)
            except KubeError as error:
                log.warning("what proxies refuse cannot be told: %s", error)
            except Exception:  # a defect of ours in what is said of objects is no reason to stop serving them
                log.exception("what proxies refuse cannot be told; it is tried again")

    async def _say(self) -> None:
        problems = tuple(map(_short, self._plane.refusals()[:MOST]))
        due = bool(problems) and time.monotonic() - self._said_at >= REPEAT_SECONDS
        if problems == self._said.problems and not due:
            return
        said = _Said(self._said.number + 1, problems)
        own = {self._replica: msgspec.json.encode(said).decode()} if problems else {}
        metadata = self._names.metadata(self._names.refusals)
        # What all replicas say alike is the word of one manager. Each has one more for its own: what it leaves out, it
        # takes away of its own and of nobody else's; and with the last that is its own, the API server forgets it.
        await self._apply(metadata, {}, manager="weft-control")
        bare = {name: metadata[name] for name in ("name", "namespace")}
        await self._apply(bare, own, manager=f"weft-{self._replica}"[:128])
        self._said, self._said_at = said, time.monotonic()

    async def _apply(self, metadata: Mapping[str, Any], data: Mapping[str, str], *, manager: str) -> None:
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **({"data": data} if data else {})}
        await self._client.apply(manifest, manager=manager, force=True)

    async def _forget(self) -> None:
        now = time.monotonic()
        for replica in [who for who, (_, since) in self._heard.items() if now - since >= FORGET_SECONDS]:
            log.info("%s has not been heard of for %g s; what it told is forgotten", replica, FORGET_SECONDS)
            self._note(replica, ())
            patch = {"data": {replica: None}}
            await self._client.patch(CONFIG_MAPS, self._names.refusals, patch, namespace=self._names.namespace)
            self._heard.pop(replica, None)


def _short(problem: Problem) -> Problem:
    return msgspec.structs.replace(problem, what=problem.what[:_LONGEST])
