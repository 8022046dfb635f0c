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
