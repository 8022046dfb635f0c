"""When an app counts as ready, and at which of its pod's addresses others call it.

A pod comes in with a program that has just started, and is told whether it is ready, and if not, why. Rule: an app
without a probe is ready as soon as it listens at one of its addresses, and is left alone from then on.
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

_LOOK_AGAIN = 0.5  # seconds between two looks at whether an app listens


class App(msgspec.Struct, frozen=True, kw_only=True):
    """A program that runs in a pod."""

    workload: Workload
    namespace: NetworkNamespace
    addresses: tuple[str, ...]  # of the pod
    pid: int
    run: Callable[[tuple[str, ...]], Awaitable[int]]  # a command beside it; its exit status


async def watch(app: App, tell: probe.Tell) -> None:
    """With a probe, until cancelled."""
    workload = app.workload
    if workload.readiness is not None:
        await probe.watch(workload.readiness, _target(app, app.addresses[0]), tell)
    first = next((port for port in workload.ports if port.protocol is not Protocol.UDP), None)
    if first is not None:
        # Kubernetes would send requests before anybody listens. Once it has listened, it is left alone.
        await _until_it_listens(app, first.number, tell)
    tell(True, "")


def served(app: App) -> tuple[str, ...]:
    """The addresses at which the app takes connections. One that listens on IPv4 alone, as most do, must not be
    called at the other address, where its proxy would take the call and could not pass it on."""
    ports = {port.number for port in app.workload.ports}
    versions = {version for version, port in listening(app.pid) if port in ports}
    return tuple(text for text in app.addresses if ip_address(text).version in versions)


async def _until_it_listens(app: App, port: int, tell: probe.Tell) -> None:
    """On either of its addresses. What is being waited for is said meanwhile."""
    listens = Probe(TcpProbe(port), period=timedelta(seconds=_LOOK_AGAIN))
    asking = [asyncio.ensure_future(probe.until_passed(listens, _target(app, address))) for address in app.addresses]
    try:
        done: set[asyncio.Future[None]] = set()
        while not done:
            tell(False, _why_deaf(app, port))
            done, _ = await asyncio.wait(asking, timeout=_LOOK_AGAIN, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in asking:
            each.cancel()


def _why_deaf(app: App, port: int) -> str:
    if port in inward(app.pid):
        return f"port {port} is listened on at 127.0.0.1 only, and calls come to the pod's own address"
    return f"nothing listens on {port}"


def _target(app: App, address: str) -> probe.ProbeTarget:
    ports = tuple((port.name, port.number) for port in app.workload.ports)
    return probe.ProbeTarget(app.namespace, address, ports, app.run)
