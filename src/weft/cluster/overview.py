"""Makes the leading replica translate the config of every group of the cluster (a group is a set of proxies with
equal config), whichever replica the group's proxies are connected to. So the leader finds all problems and writes
them to the status of objects.

Input: the watch of Pods. Output: calls of the control plane's `hold`, after which it keeps the config of a group up to
date, and `release`, after which it may drop the config. Rule: a group is released when its last pod is gone. Groups are
added one at a time, so that proxies are served in between.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from weft.kube.pods import PodIndex, PodRecord
from weft.model.group import Group

_PAUSE = 1.0  # seconds between updates: a rollout changes many pods and few groups


class ConnectedGroups(Protocol):
    """The part of the control plane that this module uses."""

    def hold(self, group: Group) -> None: ...

    def release(self, group: Group) -> None: ...


class Overview:
    def __init__(self, groups: ConnectedGroups, pods: PodIndex) -> None:
        self._groups, self._pods = groups, pods
        self._held: set[Group] = set()
        self._due = asyncio.Event()

    async def run(self) -> None:
        """Call `hold` and `release` for the groups of the cluster's pods, until cancelled."""
        self._pods.on_change.append(self._on_change)
        self._due.set()
        try:
            while True:
                await self._due.wait()
                self._due.clear()
                await self._update()
                await asyncio.sleep(_PAUSE)
        finally:
            self._pods.on_change.remove(self._on_change)
            for group in self._held:
                self._groups.release(group)
            self._held.clear()

    async def _update(self) -> None:
        wanted = {record.group for record in self._pods if record.proxied}
        for group in self._held - wanted:
            self._held.discard(group)
            self._groups.release(group)
        for group in sorted(wanted - self._held):
            self._held.add(group)
            self._groups.hold(group)
            await asyncio.sleep(0)

    def _on_change(self, before: PodRecord | None, after: PodRecord | None) -> None:
        if _group(before) != _group(after):
            self._due.set()


def _group(record: PodRecord | None) -> Group | None:
    return record.group if record is not None and record.proxied else None
