"""Creates the objects of a large cluster in a real API server: namespaces, services, pods, EndpointSlices and nodes.

Each service has two pods, with everything that injection adds. The pods of a service are on different nodes. No pod
runs: this module writes the pods' statuses as kubelets would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from functools import cache
from typing import Any

import msgspec

from weft.cluster.sidecar_arguments import arguments
from weft.inject.settings import InjectionSettings
from weft.inject.workloads import inject_document
from weft.install.manifests import manifests
from weft.install.values import Values
from weft.kube.apply import apply
from weft.kube.client import Client
from weft.kube.resource import (
    ENDPOINT_SLICES,
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    SERVICES,
    ResourceKind,
)

ROOT = "istio-system"
AGENT = "weft-node"
VIRTUAL_SERVICES = ResourceKind("networking.istio.io", "v1", "virtualservices", "VirtualService")
_PER_NAMESPACE = 10
_PER_SERVICE = 2
_PORT = 8080
_AT_ONCE = 24
# Kinds of weft's manifests that are not installed: workloads, and webhooks, which would reject objects while no webhook
# server runs.
_LEFT_OUT = {
    "Deployment",
    "DaemonSet",
    "PodDisruptionBudget",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
}

Object = dict[str, Any]


class Shape(msgspec.Struct, frozen=True):
    services: int
    nodes: int

    @property
    def namespaces(self) -> int:
        return -(-self.services // _PER_NAMESPACE)

    @property
    def pods(self) -> int:
        return self.services * _PER_SERVICE

    def service(self, number: int) -> tuple[str, str]:
        """Return the namespace and name of a service."""
        return f"team-{number // _PER_NAMESPACE}", f"service-{number % _PER_NAMESPACE}"

    def node(self, pod: int) -> str:
        """Return the node of a pod. Pods with neighbouring numbers belong to the same service or namespace; they are
        put on different nodes."""
        return f"node-{(pod * 37 + pod // self.nodes) % self.nodes}"


class Agent(msgspec.Struct, frozen=True):
    """The node agent of one node: its token, which is bound to the agent's pod, and the UIDs of the pods on its
    node."""

    node: str
    token: str
    pods: list[str]


async def install(client: Client) -> None:
    """Install weft's CustomResourceDefinitions, service accounts, roles and settings, but no workloads and no
    webhooks."""
    objects = [each for each in manifests(Values()) if each["kind"] not in _LEFT_OUT]
    for each in objects:
        if (each["kind"], each["metadata"]["name"]) == ("ConfigMap", "istio"):
            # With on-demand config, proxies that call no service would receive no changes.
            each["metadata"].setdefault("annotations", {})["weft.dev/on-demand"] = "false"
    async for _ in apply(client, objects):
        pass
    await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, namespace=ROOT)


async def load(client: Client, shape: Shape) -> list[Agent]:
    await _all(_namespace(client, number) for number in range(shape.namespaces))
    await _all(client.create(NODES, _node(number)) for number in range(shape.nodes))
    pods_by_node: dict[str, list[str]] = {f"node-{number}": [] for number in range(shape.nodes)}
    await _all(_service(client, shape, number, pods_by_node) for number in range(shape.services))
    await _all(client.create(VIRTUAL_SERVICES, route(shape, number, 90), namespace=shape.service(number)[0])
               for number in range(0, shape.services, _PER_NAMESPACE))  # fmt: skip
    agents: list[Agent] = []
    await _all(_agent(client, node, pods, agents) for node, pods in pods_by_node.items())
    return agents


def route(shape: Shape, number: int, weight: int) -> Object:
    """Return a VirtualService that sends `weight` percent of a service's requests to that service and the rest to
    the next service."""
    (namespace, name), (_, other) = shape.service(number), shape.service(number + 1)
    destinations = [
        {"destination": {"host": host}, "weight": share} for host, share in ((name, weight), (other, 100 - weight))
    ]
    return {
        "apiVersion": VIRTUAL_SERVICES.api_version,
        "kind": VIRTUAL_SERVICES.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"hosts": [name], "http": [{"route": destinations}]},
    }


async def set_weight(client: Client, shape: Shape, number: int, weight: int) -> None:
    namespace, name = shape.service(number)
    patch = {"spec": route(shape, number, weight)["spec"]}
    await client.patch(VIRTUAL_SERVICES, name, patch, namespace=namespace)


async def set_ready(client: Client, shape: Shape, number: int, *, ready: bool) -> None:
    """Make the first pod of a service ready or not ready: change the pod's status, as its kubelet would, and then
    the EndpointSlice."""
    namespace, name = shape.service(number)
    pod = f"{name}-0"
    await client.patch(PODS, pod, {"status": _conditions(ready=ready)}, namespace=namespace, subresource="status")
    first = [_endpoint(shape, number, each, ready=ready or each > 0) for each in range(_PER_SERVICE)]
    await client.patch(ENDPOINT_SLICES, name, {"endpoints": first}, namespace=namespace)


async def _namespace(client: Client, number: int) -> None:
    name = f"team-{number}"
    await client.create(NAMESPACES, {"metadata": {"name": name, "labels": {"istio-injection": "enabled"}}})
    await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, namespace=name)


async def _service(client: Client, shape: Shape, number: int, pods_by_node: dict[str, list[str]]) -> None:
    namespace, name = shape.service(number)
    await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": name}}, namespace=namespace)
    ports = [{"name": "http", "port": 80, "targetPort": _PORT}]
    spec = {"selector": {"app": name}, "ports": ports}
    await client.create(SERVICES, {"metadata": {"name": name}, "spec": spec}, namespace=namespace)
    for each in range(_PER_SERVICE):
        place = shape.node(number * _PER_SERVICE + each)
        pod = _pod(namespace, name, f"{name}-{each}", place)
        created = await client.create(PODS, pod, namespace=namespace)
        status = {**_conditions(ready=True), "phase": "Running", **_addresses(_address(number, each))}
        await client.patch(PODS, f"{name}-{each}", {"status": status}, namespace=namespace, subresource="status")
        pods_by_node[place].append(created["metadata"]["uid"])
    await client.create(ENDPOINT_SLICES, _slice(shape, number), namespace=namespace)


async def _agent(client: Client, node: str, pods: list[str], agents: list[Agent]) -> None:
    name = f"{AGENT}-{node}"
    spec = {"nodeName": node, "serviceAccountName": AGENT, "containers": [{"name": "agent", "image": "weft"}]}
    created = await client.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace=ROOT)
    bound = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": created["metadata"]["uid"]}
    request = {"spec": {"audiences": ["istio-ca"], "boundObjectRef": bound}}
    reply = await client.create(SERVICE_ACCOUNTS, request, namespace=ROOT, name=AGENT, subresource="token")
    agents.append(Agent(node, reply["status"]["token"], pods))


def _node(number: int) -> Object:
    zone = {"topology.kubernetes.io/region": "one", "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    return {"metadata": {"name": f"node-{number}", "labels": zone}}


def _pod(namespace: str, service: str, name: str, node: str) -> Object:
    """Return a pod as weft's injector of this checkout creates it."""
    text = _template().replace("the-namespace", namespace).replace("the-service", service)
    pod: Object = msgspec.json.decode(text.replace("the-pod", name).replace("the-node", node))
    return pod


@cache
def _template() -> str:
    """Return an injected pod as JSON with placeholder names. Injection runs once, and thousands of pods are made
    from the text."""
    plain = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "the-pod",
            "namespace": "the-namespace",
            "labels": {"app": "the-service", "version": "v1"},
        },
        "spec": {
            "nodeName": "the-node",
            "serviceAccountName": "the-service",
            "containers": [{"name": "app", "image": "app", "ports": [{"name": "http", "containerPort": _PORT}]}],
        },
    }
    injected = inject_document(
        plain, InjectionSettings(), arguments, namespace="the-namespace", native_sidecars=True, sleep_hooks=True
    )
    return msgspec.json.encode(injected.document).decode()


def _slice(shape: Shape, number: int) -> Object:
    namespace, name = shape.service(number)
    labels = {"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "bench"}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "addressType": "IPv4",
        "endpoints": [_endpoint(shape, number, each, ready=True) for each in range(_PER_SERVICE)],
        "ports": [{"name": "http", "port": _PORT, "protocol": "TCP"}],
    }


def _endpoint(shape: Shape, number: int, each: int, *, ready: bool) -> Object:
    namespace, name = shape.service(number)
    return {
        "addresses": [_address(number, each)],
        "conditions": {"ready": ready, "serving": ready, "terminating": False},
        "nodeName": shape.node(number * _PER_SERVICE + each),
        "targetRef": {"kind": "Pod", "namespace": namespace, "name": f"{name}-{each}"},
    }


def _address(number: int, each: int) -> str:
    unique = number * _PER_SERVICE + each
    return f"10.244.{unique // 250}.{unique % 250 + 1}"


def _addresses(address: str) -> Object:
    return {"podIP": address, "podIPs": [{"ip": address}]}


def _conditions(*, ready: bool) -> Object:
    status = "True" if ready else "False"
    return {"conditions": [{"type": kind, "status": status} for kind in ("Ready", "ContainersReady")]}


async def _all(work: Iterable[Awaitable[Any]]) -> None:
    """Await all of `work`, at most 24 at a time. The first failure cancels the rest."""
    waiting = iter(work)

    async def worker() -> None:
        for awaitable in waiting:
            await awaitable

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_AT_ONCE):
            tasks.create_task(worker())
