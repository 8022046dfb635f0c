"""Measures retry amplification: how many requests a failing backend receives for each request that a client sends.
The call chain is client → a → b → c, and c always fails.

Without a mesh the factor is 1. Each of the three calls passes two proxies that may retry by default, so in the worst
case the retries would multiply. The rig sends requests at a low rate, at which a retry budget limits nothing, and at
a high rate, at which the budget matters. A connection reset of a repeatable request is retried only by the last
proxy of the chain, at most twice; the proxies before it do not retry.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from bench import mesh
from bench.figure import Effort, Figure, Say
from bench.hop import GRPC_PORT, HTTP_PORT
from bench.process import Failed
from weft.local.pod import LocalPod
from weft.netns.namespace import socket_in

_CHAIN = ("client", "a", "b", "c")
# By kind of failure: its name in the figures, and the highest acceptable amplification factor.
_KINDS = {"http": ("HTTP, answered 503", 1.2), "reset": ("HTTP GET, reset", 3.0), "grpc": ("gRPC, UNAVAILABLE", 1.2)}
_TRICKLE, _LOAD = 10, 300


def run(effort: Effort, say: Say) -> list[Figure]:
    return asyncio.run(_measure(effort, say))


async def _measure(effort: Effort, say: Say) -> list[Figure]:
    figures = []
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        where = Path(directory)
        (where / "mesh.yaml").write_text("---\n".join(json.dumps(each) + "\n" for each in objects()))
        async with mesh.running(where) as engine:
            await mesh.until_ready(engine, len(_CHAIN))
            pods = {pod.plan.workload.name: pod for pod in engine.pods()}
            for kind, (named, goal) in _KINDS.items():
                for rate, seconds in ((_TRICKLE, effort.of(5, 1)), (_LOAD, effort.of(5, 1))):
                    say(f"{named}, {rate} requests/s")
                    value = await _factor(pods, kind, rate, seconds)
                    figures.append(Figure(f"requests at a failing backend, {named}, {rate}/s", value, "×", goal, 1.0))
    return figures


async def _factor(pods: dict[str, LocalPod], kind: str, rate: int, seconds: int) -> float:
    before = (await _get(pods["c"], "/count")).get(kind, 0)
    sent = (await _get(pods["client"], f"/drive?kind={kind}&rate={rate}&seconds={seconds}"))["sent"]
    return float(((await _get(pods["c"], "/count")).get(kind, 0) - before) / sent)


async def _get(pod: LocalPod, path: str) -> dict[str, Any]:
    return await asyncio.to_thread(_blocking_get, pod, path)


def _blocking_get(pod: LocalPod, path: str) -> dict[str, Any]:
    """Send a GET for `path` to the pod's app and return the decoded JSON reply. The request uses the pod's loopback,
    which is not intercepted."""
    connection = http.client.HTTPConnection("127.0.0.1", HTTP_PORT, timeout=60)
    connection.sock = socket_in(pod.namespace)
    connection.sock.settimeout(60)
    connection.sock.connect(("127.0.0.1", HTTP_PORT))
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.status != 200:
            raise Failed(f"{pod.plan.name} responded with {answer.status} to {path}")
        return msgspec.json.decode(answer.read(), type=dict[str, Any])
    finally:
        connection.close()


def objects() -> list[mesh.Object]:
    documents: list[mesh.Object] = []
    for name, next_name in zip(_CHAIN, (*_CHAIN[1:], ""), strict=True):
        documents.append({
            "apiVersion": "weft.dev/v1alpha1", "kind": "Workload", "metadata": {"name": name, "namespace": "bench"},
            "spec": {
                "command": [sys.executable, "-m", "bench.hop"],
                "workingDirectory": str(Path(__file__).resolve().parent.parent),
                "env": {"NEXT": next_name},
                "ports": [{"name": "http", "port": HTTP_PORT}, {"name": "grpc", "port": GRPC_PORT}],
                "readiness": {"tcp": {"port": GRPC_PORT}, "period": "100ms"},
            },
        })  # fmt: skip
        ports = [{"name": "http", "port": 80, "targetPort": HTTP_PORT}, {"name": "grpc", "port": GRPC_PORT}]
        documents.append({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "bench"},
            "spec": {"selector": {"app": name}, "ports": ports},
        })  # fmt: skip
    return documents
