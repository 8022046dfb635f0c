"""Compares the config that a proxy gets by default (on demand, if there are many services) with the config of all
services. A workload calls five services out of a hundred, a thousand and five thousand. The figures are the
proxy's memory, the size of its config, the duration of a first call, and the cost of one changed route. For a
hundred services the default is to send all of them, so the rig also measures on-demand config there.

The mesh is a real one on this machine. One workload without a proxy serves all services, so the figures are of the
caller's proxy and of the control plane's work for it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from bench import mesh
from bench.figure import Effort, Figure, Say
from bench.process import Failed, cpu_seconds, memory
from weft.api.mesh_config import ON_DEMAND
from weft.inspect.live import live_stage
from weft.local.engine import Engine
from weft.local.pod import LocalPod
from weft.model.group import group_of
from weft.model.on_demand import FEW, OnDemand

_CALLED = 5
_SIZES, _QUICK_SIZES = (100, 1_000, 5_000), (50, 200)
_MEGABYTE = 1_000_000
_SYNC_SECONDS = 240.0
_SETTLE_SECONDS = 3.0  # Envoy returns memory to the system some time after it has processed a large response
_SERVER = """
import http.server
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("content-length", "2"); self.end_headers(); self.wfile.write(b"ok")
http.server.ThreadingHTTPServer(("", 8080), Answer).serve_forever()
"""


class _Change(msgspec.Struct, frozen=True):
    cpu: float  # seconds of this process, which runs the control plane and the rest of the local engine
    proxy_cpu: float  # seconds of the caller's proxy
    took: float  # seconds until the proxy has ACKed
    received: int  # bytes that the caller's proxy received


class _Measured(msgspec.Struct, frozen=True):
    configuration: int  # bytes that the caller's proxy should have
    private: int
    first: float  # seconds; the median of the first calls to the called services
    later: float
    changes: tuple[_Change, ...]


def run(effort: Effort, say: Say) -> list[Figure]:
    sizes = _QUICK_SIZES if effort.quick else _SIZES
    figures: list[Figure] = []
    for size in sizes:
        whole = asyncio.run(_measure(size, effort.of(9, 3), OnDemand.OFF))
        compared = {"by default": OnDemand.AUTO} | ({"on demand": OnDemand.ON} if size <= FEW else {})
        results = {what: asyncio.run(_measure(size, effort.of(9, 3), setting)) for what, setting in compared.items()}
        for what, measured in results.items():
            figures += _held(f"scope, {_CALLED} of {size:,} services called", what, measured, whole)
            say(
                f"{size:,} services: {measured.configuration / 1024:,.0f} KiB and {measured.private / _MEGABYTE:.1f} "
                f"MB {what}, {whole.configuration / 1024:,.0f} KiB and {whole.private / _MEGABYTE:.1f} MB of all"
            )
        for what, measured in {"all": whole, **results}.items():
            name = f"one changed route at {size:,} services, {what}"
            figures += [
                Figure(f"{name}: CPU", _mid(measured, "cpu") * 1000, "ms"),
                Figure(f"{name}: CPU of the caller's proxy", _mid(measured, "proxy_cpu") * 1000, "ms"),
                Figure(f"{name}: received by the caller's proxy", _mid(measured, "received") / 1024, "KiB"),
                Figure(f"{name}: saved → ACKed", _mid(measured, "took") * 1000, "ms"),
            ]
    return figures


def _held(title: str, what: str, measured: _Measured, whole: _Measured) -> list[Figure]:
    calls = "" if what == "by default" else f" {what}"
    return [
        Figure(f"{title}: configuration {what} (baseline: all)", measured.configuration / 1024, "KiB", None,
               whole.configuration / 1024),
        Figure(f"{title}: sidecar's private memory {what} (baseline: all)", measured.private / _MEGABYTE, "MB", None,
               whole.private / _MEGABYTE),
        Figure(f"{title}: first call{calls}, median (baseline: all)", measured.first * 1000, "ms", None,
               whole.first * 1000),
        Figure(f"{title}: later call{calls}, median (baseline: all)", measured.later * 1000, "ms", None,
               whole.later * 1000),
    ]  # fmt: skip


async def _measure(size: int, repeats: int, setting: OnDemand) -> _Measured:
    every = setting is OnDemand.OFF
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        path = Path(directory)
        Path(directory).chmod(0o755)
        mesh.save(path / "workloads.yaml", mesh.workload("caller"), _server())
        mesh.save(path / "settings.yaml", _settings(setting))
        if not every:
            mesh.save(path / "services.yaml", *_services(size))
        async with mesh.running(path) as engine:
            await mesh.until_ready(engine, 2)
            caller = next(pod for pod in engine.pods() if pod.plan.workload.name == "caller")
            if every:
                # Services are added after the start: with thousands of services, Envoy may take longer to become ready
                # than the engine allows.
                mesh.save(path / "services.yaml", *_services(size))
                await mesh.until(
                    "the control plane to have all services", lambda: len(engine.control.mesh.hosts()) >= size
                )
            await mesh.until("the proxy to be in sync", lambda: _in_sync(engine), seconds=_SYNC_SECONDS)
            names = [f"service-{number * (size // _CALLED)}" for number in range(_CALLED)]
            first = [await _call(engine, caller, name) for name in names]
            later = [await _call(engine, caller, name) for name in names for _ in range(5)]
            await asyncio.sleep(_SETTLE_SECONDS)
            private = memory(_proxy(caller))[0]
            changes = [await _change(engine, caller, path, names[0], 10 + repeat) for repeat in range(repeats)]
            return _Measured(_configuration(engine, caller), private, median(first), median(later), tuple(changes))


def _settings(setting: OnDemand) -> mesh.Object:
    annotations = {ON_DEMAND: setting.value}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "istio", "namespace": "istio-system", "annotations": annotations},
        "data": {"mesh": "{}"},
    }


def _server() -> mesh.Object:
    server = mesh.workload(
        "web", command=[sys.executable, "-c", _SERVER], ports=[{"name": "http", "port": 8080}],
        readiness={"tcp": {"port": 8080}, "period": "100ms"},
    )  # fmt: skip
    server["metadata"] |= {"labels": {"app": "web"}, "annotations": {"sidecar.istio.io/inject": "false"}}
    return server


def _services(size: int) -> list[mesh.Object]:
    services = [mesh.service(f"service-{number}", 80, 8080) for number in range(size)]
    for each in services:
        each["spec"]["selector"] = {"app": "web"}
    return services


async def _call(engine: Engine, caller: LocalPod, name: str) -> float:
    """Return the duration of one call in seconds. There is no retry: if the call fails, the rig fails."""
    address = mesh.service_address(engine, name), 80
    began = time.monotonic()
    answer = await asyncio.to_thread(mesh.request, caller, address, name)
    took = time.monotonic() - began
    if not answer.startswith(b"HTTP/1.1 200"):
        raise Failed(f"{name} responded with {answer[:80]!r}")
    return took


async def _change(engine: Engine, caller: LocalPod, directory: Path, name: str, seconds: int) -> _Change:
    route: dict[str, Any] = mesh.weighted_route(name, {name: 100})
    route["spec"]["http"][0]["timeout"] = f"{seconds}s"
    before = await _received(caller)
    proxy_cpu = cpu_seconds(_proxy(caller))
    pushes, cpu, began = engine.control.pushes, time.process_time(), time.monotonic()
    mesh.save(directory / "route.yaml", route)
    await mesh.until(
        "the proxy to have the route", lambda: engine.control.pushes > pushes and _in_sync(engine), every=0.001
    )
    took, cpu = time.monotonic() - began, time.process_time() - cpu
    return _Change(cpu, cpu_seconds(_proxy(caller)) - proxy_cpu, took, await _received(caller) - before)


def _proxy(caller: LocalPod) -> int:
    if caller.proxy is None or not caller.proxy.pid:
        raise Failed("the caller has no proxy")
    return caller.proxy.pid


def _in_sync(engine: Engine) -> bool:
    proxies = engine.control.proxies()
    return len(proxies) == 1 and not engine.control.pending and all(each.sync.value == "SYNCED" for each in proxies)


async def _received(caller: LocalPod) -> int:
    """Return how many bytes the caller's proxy has received from the control plane, from Envoy's stats."""
    if caller.proxy is None:
        raise Failed("the caller has no proxy")
    stats = await caller.proxy.admin.read("/stats", {"filter": r"^cluster\.xds-grpc\.upstream_cx_rx_bytes_total"})
    return int(stats.decode().rpartition(":")[2])


def _configuration(engine: Engine, caller: LocalPod) -> int:
    sent = live_stage(engine.control).resources(group_of(caller.plan.workload))
    return sum(len(body) for bodies in sent.values() for body in bodies.values())


def _mid(measured: _Measured, what: str) -> float:
    return float(median(getattr(change, what) for change in measured.changes))
