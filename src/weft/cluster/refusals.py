"""Shares the resources that proxies reject between replicas of the control plane. A proxy is connected to one replica,
while another replica may be the leader, which writes problems to the status of objects.

All replicas use one ConfigMap. A replica writes its rejections under its own name, or no entry if it has none. The
entries of other replicas become problems of this replica, too. Rule: a replica with rejections rewrites its entry
periodically, and an entry that has not changed for a while is dropped. Clocks are not compared.
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
FORGET_SECONDS = 65.0  # an entry unchanged for this long has missed three rewrites
MOST = 100  # problems per replica: a ConfigMap holds 1 MB, and the important part of a message comes first
_LONGEST = 1_000


class Plane(Protocol):
    """The part of the control plane that this module uses."""

    def refusals(self) -> tuple[Problem, ...]: ...

    def note(self, topic: str, problems: Iterable[Problem]) -> None: ...


class _Entry(msgspec.Struct, frozen=True):
    number: int  # counts writes, so that the entry of a running replica keeps changing
    problems: tuple[Problem, ...] = ()


class _ConfigMap(msgspec.Struct, frozen=True):
    data: dict[str, str] = {}


class Refusals:
    def __init__(self, client: Client, names: InstallationNames, replica: str, plane: Plane) -> None:
        self._client, self._names, self._replica, self._plane = client, names, replica, plane
        self._written = _Entry(0)
        self._written_at = 0.0
        self._entries: dict[str, tuple[str, float]] = {}  # replica → its entry, and since when that is unchanged

    async def run(self) -> None:
        """Share rejections until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._write_all())

    async def _follow(self) -> None:
        names = self._names
        fields = f"metadata.name={names.refusals}"
        async for batch in reflect(self._client, CONFIG_MAPS, _ConfigMap, namespace=names.namespace, fields=fields):
            for event in batch:
                self._read(event.object.data if event.object is not None else {})

    def _read(self, data: Mapping[str, str]) -> None:
        for replica in self._entries.keys() - data.keys():
            del self._entries[replica]
            self._note(replica, ())
        for replica, text in data.items():
            if replica == self._replica or self._entries.get(replica, ("", 0.0))[0] == text:
                continue
            self._entries[replica] = (text, time.monotonic())
            try:
                entry = msgspec.json.decode(text, type=_Entry)
            except (msgspec.MsgspecError, RecursionError, ValueError) as error:
                log.warning("the rejections of %s cannot be read: %s", replica, error)
                continue
            self._note(replica, entry.problems[:MOST])

    def _note(self, replica: str, problems: Iterable[Problem]) -> None:
        self._plane.note(f"refused at {replica}", problems)

    async def _write_all(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._write()
                await self._forget()
            except ApiError as error:
                log.error("cannot report rejected resources to the other replicas: %s", error)
                await asyncio.sleep(REPEAT_SECONDS)
            except KubeError as error:
                log.warning("cannot report rejected resources to the other replicas: %s", error)
            except Exception:  # a defect in this report must not stop the control plane
                log.exception("cannot report rejected resources to the other replicas; retrying")

    async def _write(self) -> None:
        problems = tuple(map(_short, self._plane.refusals()[:MOST]))
        due = bool(problems) and time.monotonic() - self._written_at >= REPEAT_SECONDS
        if problems == self._written.problems and not due:
            return
        entry = _Entry(self._written.number + 1, problems)
        own = {self._replica: msgspec.json.encode(entry).decode()} if problems else {}
        metadata = self._names.metadata(self._names.refusals)
        # All replicas apply the metadata with the same field manager, and each replica applies its entry with its own
        # manager. An apply without the entry removes only that entry, and the API server then drops the manager.
        await self._apply(metadata, {}, manager="weft-control")
        bare = {name: metadata[name] for name in ("name", "namespace")}
        await self._apply(bare, own, manager=f"weft-{self._replica}"[:128])
        self._written, self._written_at = entry, time.monotonic()

    async def _apply(self, metadata: Mapping[str, Any], data: Mapping[str, str], *, manager: str) -> None:
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **({"data": data} if data else {})}
        await self._client.apply(manifest, manager=manager, force=True)

    async def _forget(self) -> None:
        now = time.monotonic()
        for replica in [name for name, (_, since) in self._entries.items() if now - since >= FORGET_SECONDS]:
            log.info("%s has not written for %g s; its rejections are dropped", replica, FORGET_SECONDS)
            self._note(replica, ())
            patch = {"data": {replica: None}}
            await self._client.patch(CONFIG_MAPS, self._names.refusals, patch, namespace=self._names.namespace)
            self._entries.pop(replica, None)


def _short(problem: Problem) -> Problem:
    return msgspec.structs.replace(problem, what=problem.what[:_LONGEST])
