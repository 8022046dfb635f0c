"""Measures the control plane with a thousand proxies: the cost of the first push, of one changed route and of one
changed endpoint.

The mesh has a thousand services in a hundred namespaces, and a hundred groups of ten proxies. In the upper half of
the namespaces a Sidecar limits the proxies to their own namespace, so changes in other namespaces must cost them
nothing.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from bench.control_process import Shape
from bench.figure import Effort, Figure, Say
from bench.process import Failed, Running, cpu_seconds, resident

_MEGABYTE = 1_000_000
_QUIET_SECONDS = 0.3


def run(effort: Effort, say: Say) -> list[Figure]:
    shape = Shape(namespaces=effort.of(100, 20), services=10, per_group=10)
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        return _Rig(shape, Path(directory)).run(effort.of(9, 3), say)


class _Change:
    """The cost of one change: CPU seconds, seconds of translation, number of group updates, bytes and messages sent,
    and seconds until the last client received the change."""

    def __init__(self, before: dict[str, Any], after: dict[str, Any], cpu: float, got: dict[str, Any]) -> None:
        self.cpu = cpu
        self.translation = after["translation"] - before["translation"]
        self.pushes = after["pushes"] - before["pushes"]
        self.bytes: dict[str, int] = got["bytes"]
        self.messages: dict[str, int] = got["messages"]
        self.clients: int = got["clients"]
        self.took = got["last"] - before["now"]


class _Rig:
    def __init__(self, shape: Shape, directory: Path) -> None:
        self._shape = shape
        self._proxies = shape.namespaces * shape.per_group
        self._address = f"unix:{directory}/xds.sock"
        self._directory = directory

    def run(self, repeats: int, say: Say) -> list[Figure]:
        with (
            Running([sys.executable, "-m", "bench.control_process"], log=self._directory / "control.log") as control,
            Running([sys.executable, "-m", "bench.ads_clients"], log=self._directory / "clients.log") as clients,
        ):
            shape = self._shape
            say(f"{shape.namespaces * shape.services} services, {self._proxies} proxies in {shape.namespaces} groups")
            control.ask(
                {
                    "do": "load",
                    "namespaces": shape.namespaces,
                    "services": shape.services,
                    "per_group": shape.per_group,
                    "address": self._address,
                }
            )
            loaded = resident(control.pid)
            first = self._first_push(control, clients)
            say(f"first push: {first.cpu:.1f} s of CPU, {sum(first.bytes.values()) / _MEGABYTE:.0f} MB")
            served = resident(control.pid)
            routes = [
                self._change(control, clients, {"do": "route", "weight": 60 + repeat}) for repeat in range(repeats)
            ]
            say(f"one route: {_mid(routes, 'cpu') * 1000:.0f} ms of CPU")
            endpoints = [
                self._change(control, clients, {"do": "endpoint", "ready": repeat % 2 == 1})
                for repeat in range(repeats)
            ]
            say(f"one endpoint: {_mid(endpoints, 'cpu') * 1000:.0f} ms of CPU")
        return self._figures(first, routes, endpoints, loaded, served)

    def _first_push(self, control: Running, clients: Running) -> _Change:
        before = control.ask({"do": "report"})
        cpu = cpu_seconds(control.pid)
        clients.ask({"do": "connect", "address": self._address, "nodes": self._shape.nodes()})
        got = clients.ask({"do": "settle", "clients": self._proxies, "quiet": 1.0})
        cpu = cpu_seconds(control.pid) - cpu
        if (synced := control.ask({"do": "synced"})["synced"]) != self._proxies:
            raise Failed(f"only {synced} of {self._proxies} proxies are in sync after the first push")
        return _Change(before, control.ask({"do": "report"}), cpu, got)

    def _change(self, control: Running, clients: Running, order: dict[str, Any]) -> _Change:
        before = control.ask({"do": "report"})
        cpu = cpu_seconds(control.pid)
        control.ask(order)
        got = clients.ask({"do": "settle", "clients": self._proxies // 2, "quiet": _QUIET_SECONDS})
        cpu = cpu_seconds(control.pid) - cpu
        return _Change(before, control.ask({"do": "report"}), cpu, got)

    def _figures(
        self, first: _Change, routes: list[_Change], endpoints: list[_Change], loaded: int, served: int
    ) -> list[Figure]:
        changes = [*routes, *endpoints]
        narrow_bytes = sum(change.bytes["narrow"] for change in changes)
        narrow_messages = sum(change.messages["narrow"] for change in changes)
        seeing = self._shape.namespaces // 2
        # Each push number stands for the update of one group. Pushes beyond the number of groups that see the change
        # were unnecessary.
        unneeded = sum(max(0, change.pushes - seeing) for change in changes)
        title = f"control plane, {self._proxies:,} proxies"
        figures = [
            Figure(f"{title}: first push, CPU", first.cpu, "s"),
            Figure(f"{title}: first push, translation", first.translation, "s"),
            Figure(f"{title}: first push, sent", sum(first.bytes.values()) / _MEGABYTE, "MB"),
            Figure(f"{title}: first push, memory per proxy", (served - loaded) / self._proxies / 1024, "KiB"),
            Figure(f"{title}: RSS after it", served / _MEGABYTE, "MB"),
        ]
        for what, measured, goal in (("VirtualService", routes, None), ("endpoint", endpoints, 1.0)):
            name = f"{title}: one {what}"
            figures += [
                Figure(f"{name}, translation", _mid(measured, "translation") * 1000, "ms", goal),
                Figure(f"{name}, CPU", _mid(measured, "cpu") * 1000, "ms"),
                Figure(f"{name}, sent", median(sum(one.bytes.values()) for one in measured) / _MEGABYTE, "MB"),
                Figure(f"{name}, until the last of {measured[0].clients} has it", _mid(measured, "took") * 1000, "ms"),
            ]
        return [
            *figures,
            Figure(f"{title}: sent to groups that do not see a change", narrow_bytes + narrow_messages, "bytes", 0),
            Figure(f"{title}: groups updated that do not see a change", unneeded, "", 0),
        ]


def _mid(changes: list[_Change], what: str) -> float:
    return float(median(getattr(change, what) for change in changes))
