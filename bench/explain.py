"""Measures `weft explain` without the command line: hypothetical requests per second and core, followed from the
caller's socket to the destination workload. The input is the xDS resources of all proxies in a mesh of a hundred
services.

Each service has an AuthorizationPolicy and a VirtualService with ten routes and a default route; the requests match
the first route, one in the middle, and the default route. The rate is based on CPU time of this process, as in a run
of request tests.
"""

from __future__ import annotations

import json
import time
from statistics import median
from typing import Any

from bench import mesh as objects
from bench.figure import Effort, Figure, Say
from weft.api.parse import parse
from weft.control.problems import Problems
from weft.control.push.push import Push
from weft.explain.decision import Kind
from weft.explain.explain import explain
from weft.explain.request import Request
from weft.explain.world import EnvoyResources, ExplainedWorkload
from weft.files.documents import read_documents
from weft.mesh.mesh import Mesh
from weft.model.group import group_of
from weft.model.instance import pod_of
from weft.model.names import ObjectKey
from weft.model.workload import Workload as Declared
from weft.xds.snapshot import Snapshots
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, ROUTE

_ROUNDS = 5
_ROUTES = 10
_TYPES = (LISTENER, ROUTE, CLUSTER, ENDPOINT)


def run(effort: Effort, say: Say) -> list[Figure]:
    services = effort.of(100, 10)
    world = _World(services)
    requests = [
        Request(host=f"svc-{number}", path=f"/{route}/orders", headers=(("x-user", "alice"),), caller="svc-0")
        for number in range(services)
        for route in (0, _ROUTES // 2, _ROUTES)
    ]
    for request in requests:
        verdict = explain(request, world).verdict
        assert verdict.kind is Kind.DELIVERED, verdict
    repeats = effort.of(10, 1)
    rates = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        for _ in range(repeats):
            for request in requests:
                explain(request, world)
        rates.append(repeats * len(requests) / (time.process_time() - began))
    rate = median(rates)
    say(f"{rate:,.0f} requests explained per second and core, {services} services")
    return [Figure(f"explain: whole journeys, {services} services", rate, "per core second")]


class _World:
    def __init__(self, services: int) -> None:
        self._by_name: dict[str, ExplainedWorkload] = {}
        self._by_address: dict[str, ExplainedWorkload] = {}
        mesh, snapshots = Mesh(), Snapshots()
        declared = [value for each in _documents(services) for value in _applied(mesh, each)]
        push = Push(mesh, snapshots, Problems())
        for number, workload in enumerate(each for each in declared if isinstance(each, Declared)):
            address = f"10.244.{number // 250}.{number % 250 + 1}"
            pod = pod_of(workload, workload.name, (address,))
            mesh.apply(ObjectKey("Pod", pod.namespace, pod.name), (pod,))
            self._by_name[workload.name] = self._by_address[address] = ExplainedWorkload(workload.name, (address,))
        for workload in (each for each in declared if isinstance(each, Declared)):
            group = group_of(workload)
            push.join(group)
            sent = ((kind, each.body) for kind in _TYPES for each in snapshots.resources(group, kind).values())
            pod_only = self._by_name[workload.name]
            identity = f"spiffe://cluster.local/ns/bench/sa/{workload.service_account}"
            explained = ExplainedWorkload(pod_only.name, pod_only.addresses, identity, EnvoyResources.from_bytes(sent))
            self._by_name[pod_only.name] = self._by_address[pod_only.addresses[0]] = explained

    def workload(self, name: str) -> ExplainedWorkload | None:
        return self._by_name.get(name)

    def at(self, address: str) -> ExplainedWorkload | None:
        return self._by_address.get(address)

    def behind(self, address: str, port: int) -> None:
        return None

    def no_port(self, address: str, port: int) -> None:
        return None

    def resolve(self, host: str, caller: ExplainedWorkload, *, by_proxy: bool = False) -> tuple[str, ...]:
        return (f"10.96.0.{host.removeprefix('svc-')}",)

    def after_call(self, caller: ExplainedWorkload, address: str) -> EnvoyResources:
        return caller.resources or EnvoyResources.from_bytes(())

    def on_demand(self, caller: ExplainedWorkload) -> str:
        return ""

    def unseen(self, caller: ExplainedWorkload, address: str, port: int) -> None:
        return None

    def is_shown(self, caller: ExplainedWorkload, address: str, port: int) -> bool:
        return True

    def uncalled(self, caller: ExplainedWorkload, cluster: str) -> str:
        return ""

    def intercepts(self, workload: ExplainedWorkload, address: str, port: int, *, inbound: bool) -> bool:
        return True


def _applied(mesh: Mesh, document: dict[str, Any]) -> tuple[Any, ...]:
    (read,) = read_documents(json.dumps(document).encode(), "bench.yaml").documents
    parsed = parse(read)
    mesh.apply(read.key, parsed.values)
    return parsed.values


def _documents(services: int) -> list[dict[str, Any]]:
    documents = []
    for number in range(services):
        name = f"svc-{number}"
        documents += [objects.workload(name), objects.service(name, 80, 8080), _routes(name), _policy(name)]
    return documents


def _routes(name: str) -> dict[str, Any]:
    to = [{"destination": {"host": name}}]
    routes = [{"match": [{"uri": {"prefix": f"/{number}/"}}], "route": to} for number in range(_ROUTES)]
    document = objects.weighted_route(name, {name: 100})
    document["spec"]["http"] = [*routes, {"route": to}]
    return document


def _policy(name: str) -> dict[str, Any]:
    rule = {
        "from": [{"source": {"namespaces": ["bench"]}}],
        "to": [{"operation": {"methods": ["GET"], "paths": ["/*"]}}],
        "when": [{"key": "request.headers[x-user]", "values": ["alice", "bob"]}],
    }
    document = objects.peer_authentication(name, "STRICT")
    document["kind"] = "AuthorizationPolicy"
    document["spec"] = {"selector": document["spec"]["selector"], "rules": [rule]}
    return document
