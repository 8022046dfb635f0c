from __future__ import annotations

import asyncio

import pytest

from local.rig import CALLER, SERVICE, mesh, web
from weft.local.observer import late_protocols
from weft.model.names import ObjectKey, Origin
from weft.model.service import Protocol
from weft.model.workload import Workload, WorkloadPort


def pod_of(workload: Workload) -> object:
    return type("Pod", (), {"plan": type("Plan", (), {"workload": workload, "key": "shop/web-0"})()})()


def test_a_late_connection_names_the_workload_its_undeclared_ports_and_the_cure():
    origin = Origin(ObjectKey("Workload", "shop", "web"), "", "web.yaml", 7)
    ports = (WorkloadPort(3306), WorkloadPort(80, "http", Protocol.HTTP))
    workload = Workload("web", "shop", ("true",), ports=ports, origin=origin)
    inbound, outbound = late_protocols(pod_of(workload), {("0.0.0.0", 15006): 2, ("10.96.1.1", 3306): 1})
    assert "undeclared here: 3306" in str(outbound) + str(inbound)
    assert {p.where.file for p in (inbound, outbound)} == {"web.yaml"}
    assert all("appProtocol" in p.hint and p.severity == "warning" for p in (inbound, outbound))
    assert late_protocols(pod_of(workload), {}) == []


def test_a_late_connection_is_the_same_problem_however_many_there_are():
    workload = Workload("web", "shop", ("true",))
    place = ("10.96.1.1", 3306)
    assert late_protocols(pod_of(workload), {place: 1}) == late_protocols(pod_of(workload), {place: 2})


@pytest.mark.root
@pytest.mark.usefixtures("run_base")
async def test_while_somebody_looks_the_rates_follow_the_traffic():
    async with mesh(SERVICE, web(), CALLER) as rig:
        await rig.until_ready("caller-0", "web-0")
        address = rig.address()
        done = asyncio.Event()

        async def call() -> None:
            while not done.is_set():
                await rig.fetch("caller", address)

        calling = asyncio.create_task(call())
        try:
            status = await rig.until(lambda status: [e for e in status.edges if e.requests_per_second > 1])
            (edge,) = status.edges
            assert (edge.source, edge.success) == ("shop/caller", 1.0)
            await rig.until(lambda status: status.edges[0].p99_ms is not None)
        finally:
            done.set()
            await calling
        await rig.until(lambda status: status.edges[0].requests_per_second == 0)


ANSWERED_BY_PROXY = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web]
  http:
    - match: [{uri: {exact: /fault}}]
      fault: {abort: {percentage: {value: 100}, httpStatus: 503}}
      route: [{destination: {host: web}}]
    - match: [{uri: {exact: /nowhere}}]
      route: [{destination: {host: nowhere.shop.svc.cluster.local}}]
    - match: [{uri: {exact: /empty}}]
      route: [{destination: {host: empty}}]
    - match: [{uri: {exact: /moved}}]
      redirect: {uri: /}
    - match: [{uri: {exact: /said}}]
      directResponse: {status: 200, body: {string: hello}}
    - match: [{uri: {exact: /}}]
      route: [{destination: {host: web}}]
"""
EMPTY = """
apiVersion: v1
kind: Service
metadata: {name: empty, namespace: shop}
spec: {selector: {app: nobody}, ports: [{name: http, port: 80}]}
"""


@pytest.mark.root
@pytest.mark.usefixtures("run_base")
async def test_what_the_callers_proxy_answers_itself_is_counted_once_and_for_the_right_row():
    async with mesh(SERVICE, web(), CALLER, EMPTY, ANSWERED_BY_PROXY) as rig:
        await rig.until_ready("caller-0", "web-0")
        address = rig.address()
        await rig.engine.observer.scrape()
        # 4 × upstream, 4 × injected, then: no cluster, redirect, direct response, no route; and one without an endpoint
        paths = ["/"] * 4 + ["/fault"] * 4 + ["/nowhere", "/moved", "/said", "/none", "/empty"]
        answers = [(await rig.fetch("caller", address, path=path))[0] for path in paths]
        assert answers == [200] * 4 + [503] * 4 + [503, 301, 200, 404, 503]

        async def rows() -> dict[str, tuple[int, float | None]]:
            await rig.engine.observer.scrape()
            edges = rig.engine.observer.traffic.edges()
            return {edge.destination.partition(".")[0]: (edge.requests, edge.success) for edge in edges}

        assert await rows() == {"web": (12, pytest.approx(7 / 12)), "empty": (1, 0.0)}
