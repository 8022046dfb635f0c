"""Runs a real mesh for a rig: weft's local engine in this process, with the objects in a directory that the rig
writes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from bench.process import Failed
from weft.local import run_directory
from weft.local.engine import Engine
from weft.local.identities import Trust
from weft.local.pod import LocalPod
from weft.netns.namespace import socket_in

SLEEP = ("sleep", "infinity")  # an app that uses no CPU; rigs start the measured processes themselves
_READY_SECONDS = 60.0
_PREFIX = "bench-"

Object = dict[str, Any]
Holds = Callable[[], bool]


@contextlib.asynccontextmanager
async def running(directory: Path, *, trust: Trust = Trust()) -> AsyncIterator[Engine]:  # noqa: B008 - a frozen value
    """Run the local engine on the directory for the duration of the block. The mesh's name contains the process id,
    so that several benchmarks can run at once. Meshes that a killed benchmark left behind are removed first,
    because no later run would reuse their names."""
    for record in run_directory.meshes():
        if record.name.startswith(_PREFIX) and not record.running:
            run_directory.clean(record.name)
    engine = Engine(directory, name=f"{_PREFIX}{os.getpid()}", trust=trust)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def until(what: str, holds: Holds, *, every: float = 0.02, seconds: float = _READY_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise Failed(f"waited {seconds:.0f} s for: {what}")
        await asyncio.sleep(every)


async def until_ready(engine: Engine, pods: int) -> None:
    def all_ready() -> bool:
        if problems := engine.problems():
            raise Failed(f"the mesh has a problem: {problems[0]}")
        return sum(pod.ready for pod in engine.pods()) == pods

    await until(f"{pods} pods to be ready", all_ready)


async def until_answered(pod: LocalPod, address: tuple[str, int], host: str) -> None:
    """Repeat a request from the pod until it gets status 200; raise `Failed` after 60 s. A pod can be ready before
    its proxy has the config of other services, and the server may not listen yet."""

    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if (await asyncio.to_thread(request, pod, address, host)).startswith(b"HTTP/1.1 200"):
                return
        await asyncio.sleep(0.02)
    raise Failed(f"{host} did not respond to {pod.plan.name} within {_READY_SECONDS:.0f} s")


def request(pod: LocalPod, address: tuple[str, int], host: str) -> bytes:
    """Send one GET request from inside the pod, as the pod's app would, and return the whole response. There is no
    retry."""
    with socket_in(pod.namespace, socket.AF_INET) as connection:
        connection.settimeout(10.0)
        connection.connect(address)
        connection.sendall(f"GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        answer = b""
        while received := connection.recv(65536):
            answer += received
    return answer


def service_address(engine: Engine, name: str) -> str:
    return next(service.addresses[0] for service in engine.control.mesh.services() if service.name == name)


def save(path: Path, *objects: Object) -> None:
    """Write the objects to a file as editors do: to a temporary file first, which is then renamed."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text("\n---\n".join(json.dumps(each) for each in objects))  # JSON is YAML
    fresh.rename(path)


def workload(name: str, **spec: Any) -> Object:
    return _object("weft.dev/v1alpha1", "Workload", name, {"command": SLEEP, "workingDirectory": "/", **spec})


def service(name: str, port: int, target: int) -> Object:
    spec = {"selector": {"app": name}, "ports": [{"name": "http", "port": port, "targetPort": target}]}
    return _object("v1", "Service", name, spec)


def peer_authentication(app: str, mode: str) -> Object:
    """Return a PeerAuthentication that selects only the workload `app`."""
    spec = {"selector": {"matchLabels": {"app": app}}, "mtls": {"mode": mode}}
    return _object("security.istio.io/v1", "PeerAuthentication", app, spec)


def weighted_route(host: str, weights: dict[str, int]) -> Object:
    """Return a VirtualService that splits the requests for `host` between several hosts by weight."""
    destinations = [{"destination": {"host": name}, "weight": weight} for name, weight in weights.items()]
    spec = {"hosts": [host], "http": [{"route": destinations}]}
    return _object("networking.istio.io/v1", "VirtualService", host, spec)


def _object(version: str, kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "bench"}, "spec": spec}
