"""Runs weft's control plane with a mesh of many services in a separate process, controlled by JSON lines on standard
input. The commands load the mesh, change one route, change one endpoint, start or stop a profile, or report the
costs so far."""

from __future__ import annotations

import asyncio
import cProfile
import json
import pstats
import resource
import sys
import time
from typing import Any

from weft.api.document import Change, Document
from weft.control.plane import ControlPlane
from weft.model.instance import Instance
from weft.model.names import ObjectKey, labels_of


class Shape:
    """A mesh of `namespaces` × `services`. The proxies in the upper half of the namespaces see only their own
    namespace."""

    def __init__(self, namespaces: int, services: int, per_group: int) -> None:
        self.namespaces = namespaces
        self.services = services
        self.per_group = per_group

    def is_narrow(self, namespace: int) -> bool:
        return namespace >= self.namespaces // 2

    def nodes(self) -> list[dict[str, Any]]:
        """Return the xDS nodes of all proxies. There is one group per namespace: the instances of the namespace's
        first service."""
        return [
            {
                "id": f"sidecar~{instance.addresses[0]}~{instance.name}.{instance.namespace}"
                f"~{instance.namespace}.svc.cluster.local",
                "metadata": {"NAMESPACE": instance.namespace, "LABELS": dict(instance.labels)},
                "narrow": self.is_narrow(namespace),
            }
            for namespace in range(self.namespaces)
            for instance in self.instances(namespace, 0)
        ]

    def instances(self, namespace: int, service: int) -> list[Instance]:
        count = self.per_group if service == 0 else 2
        return [self.instance(namespace, service, replica) for replica in range(count)]

    def instance(self, namespace: int, service: int, replica: int, *, ready: bool = True) -> Instance:
        return Instance(
            name=f"service-{service}-{replica}",
            namespace=f"team-{namespace}",
            addresses=(f"10.{100 + service}.{namespace}.{replica + 1}",),
            labels=labels_of({"app": f"service-{service}", "version": "v1"}),
            meshed=True,
            ready=ready,
        )

    def documents(self) -> list[Document]:
        documents = [_on_demand_off()]
        for namespace in range(self.namespaces):
            for service in range(self.services):
                documents.append(_service(f"team-{namespace}", f"service-{service}", f"10.0.{namespace}.{service + 1}"))
            if self.is_narrow(namespace):
                documents.append(_own_namespace_only(f"team-{namespace}"))
        return documents


def route(weight: int) -> Document:
    """Return a VirtualService for the first service of namespace `team-0`. Groups that see only their own namespace
    do not see it."""
    destinations = [
        {"destination": {"host": f"service-{number}"}, "weight": part}
        for number, part in ((0, weight), (1, 100 - weight))
    ]
    spec = {"hosts": ["service-0"], "http": [{"route": destinations}]}
    return _document("networking.istio.io/v1", "VirtualService", "team-0", "split", {"spec": spec})


def _service(namespace: str, name: str, address: str) -> Document:
    spec = {
        "clusterIP": address,
        "selector": {"app": name},
        "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
    }
    return _document("v1", "Service", namespace, name, {"spec": spec})


def _on_demand_off() -> Document:
    """Return a mesh config that turns on-demand config off. With on-demand config, proxies that call no service
    would receive no changes."""
    named = {"name": "istio", "namespace": "istio-system", "annotations": {"weft.dev/on-demand": "false"}}
    settings = {"metadata": named, "data": {"mesh": "{}"}}
    return _document("v1", "ConfigMap", "istio-system", "istio", settings)


def _own_namespace_only(namespace: str) -> Document:
    spec = {"egress": [{"hosts": ["./*"]}]}
    return _document("networking.istio.io/v1", "Sidecar", namespace, "default", {"spec": spec})


def _document(version: str, kind: str, namespace: str, name: str, rest: dict[str, Any]) -> Document:
    key = ObjectKey(kind, namespace, name)
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, **rest}
    return Document(key, version, body, file=f"{namespace}/{name}.yaml", line=1)


class Served:
    def __init__(self) -> None:
        self._plane = ControlPlane()
        self._shape = Shape(1, 1, 1)
        self._profile = cProfile.Profile()

    async def load(self, order: dict[str, Any]) -> None:
        self._shape = Shape(order["namespaces"], order["services"], order["per_group"])
        self._plane.apply([Change(document.key, document) for document in self._shape.documents()])
        for namespace in range(self._shape.namespaces):
            for service in range(self._shape.services):
                for instance in self._shape.instances(namespace, service):
                    self._put(instance)
        self._plane.apply([Change(route(50).key, route(50))])
        # The push of these objects must be finished before the first client connects.
        await asyncio.sleep(0.5)
        if problems := self._plane.problems():
            raise RuntimeError(f"the mesh has problems: {problems[0]}")
        await self._plane.listen(order["address"])

    def change_route(self, weight: int) -> None:
        document = route(weight)
        self._plane.apply([Change(document.key, document)])

    def change_endpoint(self, *, ready: bool) -> None:
        """Set whether the last replica of service 1 in namespace 0 is ready, which adds or removes its endpoint."""
        self._put(self._shape.instance(0, 1, 1, ready=ready))

    def report(self) -> dict[str, Any]:
        return {
            "cpu": time.process_time(),
            "translation": self._plane.translation_seconds,
            "pushes": self._plane.pushes,
            "now": time.monotonic(),
        }

    def synced(self) -> dict[str, Any]:
        """Return how many proxies are in sync. This is not part of `report`, because reading the state of a thousand
        streams costs CPU time, too."""
        return {"synced": sum(proxy.sync == "SYNCED" for proxy in self._plane.proxies())}

    def profile(self, *, on: bool) -> None:
        """Start or stop cProfile. On stop, print the 35 functions with the highest CPU time to standard error."""
        if on:
            self._profile = cProfile.Profile()
            self._profile.enable()
        else:
            self._profile.disable()
            pstats.Stats(self._profile, stream=sys.stderr).sort_stats("tottime").print_stats(35)

    def _put(self, instance: Instance) -> None:
        self._plane.put(ObjectKey("Instance", instance.namespace, instance.name), (instance,))


async def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    served = Served()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        try:
            match order["do"]:
                case "load":
                    await served.load(order)
                case "route":
                    served.change_route(order["weight"])
                case "endpoint":
                    served.change_endpoint(ready=order["ready"])
                case "profile":
                    served.profile(on=order["on"])
            answer = served.synced() if order["do"] == "synced" else served.report()
        except Exception as error:  # noqa: BLE001 - the parent reads the error and ends the rig
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
