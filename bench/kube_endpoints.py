"""Measures the time from a pod's Ready condition until every Envoy that may call the pod has its endpoint.

The pods have a readiness gate that this rig sets to True or False. kubelet then updates the Ready condition at once,
and the later steps are those of any pod. The time begins when a watch receives the Ready condition from the API
server, and ends when the last Envoy lists the endpoint in `/clusters` of its admin interface.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack

from bench import kube_mesh
from bench.figure import Effort, Figure, Say, quantile
from bench.kube_mesh import Namespace, Object
from bench.process import Failed
from weft.envoy.admin import Admin
from weft.kube.client import PatchType
from weft.kube.resource import PODS, SERVICES
from weft.netns.namespace import socket_in

_CALLERS = 4
_CALLED = 2
_GATE = "bench.weft.dev/open"
_PORT = 8080
_LOOK_SECONDS = 0.005
_PATIENCE = 30.0
_GOAL_MILLISECONDS = 1000.0


def run(effort: Effort, say: Say) -> list[Figure]:
    took = asyncio.run(_measure(effort.of(40, 4), say))
    name = f"pod Ready → {_CALLERS + _CALLED} Envoys have its endpoint"
    return [
        Figure(f"{name}: p50", quantile(took, 0.5) * 1000, "ms"),
        Figure(f"{name}: p99", quantile(took, 0.99) * 1000, "ms", _GOAL_MILLISECONDS),
    ]


async def _measure(events: int, say: Say) -> list[float]:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(kube_mesh.client())
        space = await stack.enter_async_context(kube_mesh.namespace(client, "endpoints"))
        names = [f"caller-{number}" for number in range(_CALLERS)]
        called = [f"called-{number}" for number in range(_CALLED)]
        await client.create(SERVICES, _service(), namespace=space.name)
        for name in (*names, *called):
            await space.create(_pod(name, gated=name in called))
        for name in names:
            await space.pods.until_ready(name)
        for name in called:  # so that their proxies run and their addresses are known
            await _turn(space, name, ready=True)
        envoys = [await stack.enter_async_context(_admin(space, name)) for name in (*names, *called)]
        for name in called:
            await _every(envoys, _endpoint(space, name), there=True)
            await _turn(space, name, ready=False)
            await _every(envoys, _endpoint(space, name), there=False)
        say(f"{len(envoys)} Envoys run")
        took = []
        for number in range(events):
            name = called[number % _CALLED]
            # A random pause, so that the changes are not in step with tasks that run once a second.
            await asyncio.sleep(random.uniform(0.1, 0.6))
            ready = await _turn(space, name, ready=True)
            took.append(await _every(envoys, _endpoint(space, name), there=True) - ready)
            await _turn(space, name, ready=False)
            await _every(envoys, _endpoint(space, name), there=False)
        fastest, slowest = min(took) * 1000, max(took) * 1000
        say(f"{events} changes to Ready: the fastest took {fastest:.0f} ms, the slowest {slowest:.0f} ms")
    return took


async def _turn(space: Namespace, name: str, *, ready: bool) -> float:
    """Set the pod's readiness gate. Return the time at which the watch reported the new Ready condition."""
    condition = {"type": _GATE, "status": "True" if ready else "False"}
    patch = {"status": {"conditions": [condition]}}
    await space.client.patch(
        PODS, name, patch, namespace=space.name, subresource="status", patch_type=PatchType.STRATEGIC
    )
    return await space.pods.until_ready(name, ready=ready)


async def _every(envoys: list[Admin], endpoint: bytes, *, there: bool) -> float:
    """Wait until all Envoys have the endpoint, or with `there=False` until none has it. Return the time of the last
    change."""

    async def change_of(envoy: Admin) -> float:
        while (endpoint in await envoy.read("/clusters", {})) != there:
            await asyncio.sleep(_LOOK_SECONDS)
        return time.monotonic()

    try:
        async with asyncio.timeout(_PATIENCE):
            return max(await asyncio.gather(*(change_of(envoy) for envoy in envoys)))
    except TimeoutError as late:
        state = "missing in some Envoy" if there else "still present in some Envoy"
        raise Failed(f"endpoint {endpoint.decode()} is {state} after {_PATIENCE:.0f} s") from late


def _admin(space: Namespace, name: str) -> Admin:
    place = kube_mesh.pod_network(kube_mesh.running_cluster(), space.pods.statuses[name], "istio-proxy")
    return Admin(lambda: socket_in(place), name=name)


def _endpoint(space: Namespace, name: str) -> bytes:
    """Return the beginning of the endpoint's line in `/clusters` of Envoy's admin interface."""
    cluster = f"outbound|80||called.{space.name}.svc.cluster.local"
    return f"{cluster}::{space.pods.statuses[name].pod_ip}:{_PORT}::".encode()


def _service() -> Object:
    ports = [{"name": "http", "port": 80, "targetPort": _PORT}]
    return {"metadata": {"name": "called"}, "spec": {"selector": {"role": "called"}, "ports": ports}}


def _pod(name: str, *, gated: bool) -> Object:
    manifest = kube_mesh.pod(name, **({"readinessGates": [{"conditionType": _GATE}]} if gated else {}))
    if gated:
        manifest["metadata"]["labels"]["role"] = "called"
    return manifest
