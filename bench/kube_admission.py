"""Measures the latency that injection adds to the creation of a pod: the webhook alone, called over HTTPS as the API
server calls it, and dry-run creates through the API server. The baseline is the same create in a namespace
without injection."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable

import aiohttp
import msgspec

from bench import kube_mesh
from bench.figure import Effort, Figure, Say, quantile
from bench.kube_mesh import ROOT, Object
from bench.process import Failed
from weft.kube.client import Client, ListedObjects
from weft.kube.resource import CONFIG_MAPS, PODS
from weft.netns.namespace import socket_in

_HOST = "istiod.istio-system.svc"
_PORT = 15017
_WARM = 10  # calls that are not counted, while connections are opened and caches filled


def run(effort: Effort, say: Say) -> list[Figure]:
    return asyncio.run(_measure(effort.of(500, 20), say))


async def _measure(number: int, say: Say) -> list[Figure]:
    async with (
        kube_mesh.client() as client,
        kube_mesh.namespace(client, "admission") as inside,
        kube_mesh.namespace(client, "outside", injected=False) as outside,
    ):
        manifest = kube_mesh.pod("pod")
        plain = await _dry_run(client, outside.name, manifest)
        injected = await _dry_run(client, inside.name, manifest)
        if len(plain["spec"].get("initContainers", ())) or not injected["spec"].get("initContainers"):
            raise Failed("expected an injected pod in one namespace and a plain pod in the other")
        async with _webhook(client) as ask:
            body = msgspec.json.encode(_review(plain, inside.name))
            (alone,) = await _timed(number, lambda: ask(body))
        say(f"{number} reviews of {len(body):,} bytes: p50 {quantile(alone, 0.5) * 1000:.1f} ms")
        with_it, without = await _timed(
            number,
            lambda: _dry_run(client, inside.name, manifest),
            lambda: _dry_run(client, outside.name, manifest),
        )
        say(f"{number} creates of each kind: p50 {quantile(with_it, 0.5) * 1000:.1f} ms, "
            f"without injection {quantile(without, 0.5) * 1000:.1f} ms")  # fmt: skip
    through = "admission through the API server, injected"
    return [
        Figure("admission, the webhook alone: p50", quantile(alone, 0.5) * 1000, "ms"),
        Figure("admission, the webhook alone: p99", quantile(alone, 0.99) * 1000, "ms"),
        *(
            Figure(f"{through}: p{share * 100:.0f}", quantile(with_it, share) * 1000, "ms",
                   baseline=quantile(without, share) * 1000)
            for share in (0.5, 0.99)
        ),
        Figure(f"{through} to plain, p50", quantile(with_it, 0.5) / quantile(without, 0.5), "×", baseline=1),
    ]  # fmt: skip


async def _timed(number: int, *calls: Callable[[], Awaitable[object]]) -> tuple[list[float], ...]:
    """Make each call `number` times and return the durations in seconds, one list per call. The calls alternate, so
    that other load on the machine affects all of them equally."""
    took: tuple[list[float], ...] = tuple([] for _ in calls)
    for turn in range(number + _WARM):
        for call, times in zip(calls, took, strict=True):
            began = time.perf_counter()
            await call()
            if turn >= _WARM:
                times.append(time.perf_counter() - began)
    return took


async def _dry_run(client: Client, namespace: str, manifest: Object) -> Object:
    """Create the pod with `dryRun=All` and return the pod as the API server would have stored it."""
    body = msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", **manifest})
    answer = await client.raw("POST", PODS.path(namespace), query={"dryRun": "All"}, body=body)
    stored: Object = msgspec.json.decode(answer)
    return stored


@contextlib.asynccontextmanager
async def _webhook(client: Client) -> AsyncGenerator[Callable[[bytes], Awaitable[None]], None]:
    """Yield a function that sends an AdmissionReview to the webhook of one replica. It connects from the node's
    network, where the API server runs, and keeps the connection open."""
    replicas: ListedObjects[Object] = await client.list(PODS, dict, namespace=ROOT, labels="app=istiod")
    address = next(str(each["status"]["podIP"]) for each in replicas.items)
    roots = await client.get(CONFIG_MAPS, "istio-ca-root-cert", namespace=ROOT)
    context = ssl.create_default_context(cadata=roots["data"]["root-cert.pem"])
    place = kube_mesh.node_network(kube_mesh.running_cluster())
    connector = aiohttp.TCPConnector(socket_factory=lambda _: socket_in(place), limit=1)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def ask(body: bytes) -> None:
            async with session.post(
                f"https://{address}:{_PORT}/inject",
                data=body,
                headers={"Content-Type": "application/json"},
                ssl=context,
                server_hostname=_HOST,
            ) as answer:
                body_of_reply = await answer.read()
                if answer.status != 200 or b'"patch"' not in body_of_reply:
                    raise Failed(
                        f"the webhook responded with {answer.status}: {body_of_reply[:200].decode(errors='replace')}"
                    )

        yield ask


def _review(pod: Object, namespace: str) -> Object:
    """Return the AdmissionReview that the API server sends for a new pod. `pod` already has the API server's default
    values."""
    metadata = {key: value for key, value in pod["metadata"].items() if key in ("name", "labels", "annotations")}
    request = {
        "uid": str(uuid.uuid4()),
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "requestResource": {"group": "", "version": "v1", "resource": "pods"},
        "name": metadata["name"],
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
        "object": {**pod, "apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "namespace": namespace}},
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
