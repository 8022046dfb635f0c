"""Decides when an app is ready, and on which of its pod's addresses other pods can call it.

Input: an app that has just started. Output: calls of `tell` with whether it is ready, and the reason if not. Rule: an
app without a readiness probe is ready as soon as it listens on one of its pod's addresses, and is not checked after
that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from ipaddress import ip_address

import msgspec

from weft.local import probe
from weft.model.service import Protocol
from weft.model.workload import Probe, TcpProbe, Workload
from weft.netns.listening import inward, listening
from weft.netns.namespace import NetworkNamespace

_LOOK_AGAIN = 0.5  # seconds between two checks whether an app listens


class App(msgspec.Struct, frozen=True, kw_only=True):
    """A program that runs in a pod. `namespace`: the pod's network namespace. `addresses`: those of the pod. `pid`: the
    program's process. `run`: runs another command in the pod, and returns its exit status."""

    workload: Workload
    namespace: NetworkNamespace
    addresses: tuple[str, ...]  # of the pod
    pid: int
    run: Callable[[tuple[str, ...]], Awaitable[int]]  # runs another command in the pod; returns the exit status


async def watch(app: App, tell: probe.Tell) -> None:
    """Call `tell(ready, why not)` whenever the app's readiness changes. With a readiness probe, this runs until
    cancelled. Without one, it returns once the app listens on its first TCP port; at once if the app has no TCP
    port."""
    workload = app.workload
    if workload.readiness is not None:
        await probe.watch(workload.readiness, _target(app, app.addresses[0]), tell)
    first = next((port for port in workload.ports if port.protocol is not Protocol.UDP), None)
    if first is not None:
        # Kubernetes would send requests before the app listens. Once it has listened, it is not checked again.
        await _until_it_listens(app, first.number, tell)
    tell(True, "")


def served(app: App) -> tuple[str, ...]:
    """Return the pod's addresses on which the app accepts connections. Most apps listen on IPv4 only: the proxy
    would accept a call to the pod's IPv6 address, but could not forward it to the app."""
    ports = {port.number for port in app.workload.ports}
    versions = {version for version, port in listening(app.pid) if port in ports}
    return tuple(text for text in app.addresses if ip_address(text).version in versions)


async def _until_it_listens(app: App, port: int, tell: probe.Tell) -> None:
    """Return when the app listens on `port` at one of its pod's addresses. Until then, call `tell` with the reason
    why the app is not ready."""
    listens = Probe(TcpProbe(port), period=timedelta(seconds=_LOOK_AGAIN))
    attempts = [asyncio.ensure_future(probe.until_passed(listens, _target(app, address))) for address in app.addresses]
    try:
        done: set[asyncio.Future[None]] = set()
        while not done:
            tell(False, _why_deaf(app, port))
            done, _ = await asyncio.wait(attempts, timeout=_LOOK_AGAIN, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in attempts:
            each.cancel()


def _why_deaf(app: App, port: int) -> str:
    if port in inward(app.pid):
        return f"the app listens on port {port} at 127.0.0.1 only, but calls go to the pod's own address"
    return f"nothing listens on {port}"


def _target(app: App, address: str) -> probe.ProbeTarget:
    ports = tuple((port.name, port.number) for port in app.workload.ports)
    return probe.ProbeTarget(app.namespace, address, ports, app.run)
