from __future__ import annotations

import asyncio
import json
import socket

import pytest

from local.rig import CALLER, SERVICE, mesh, web
from weft.netns import namespace


@pytest.mark.root
@pytest.mark.usefixtures("run_base")
async def test_the_rates_follow_the_traffic_while_they_are_watched():
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
async def test_responses_of_the_callers_proxy_are_counted_once_and_in_the_right_row():
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


SPEAKS_FIRST = """
import socket
server = socket.create_server(("", 7000), family=socket.AF_INET6, dualstack_ipv6=True)
while True:
    connection, _ = server.accept()
    connection.sendall(b"hello, I speak first")
    connection.close()
"""
GREETER = f"""
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {{name: greeter, namespace: shop, labels: {{app: greeter}}}}
spec:
  command: [python3, -c, {json.dumps(SPEAKS_FIRST)}]
  ports: [{{port: 7000}}]
"""


def greeter_service(more: str = "") -> str:
    return f"""
apiVersion: v1
kind: Service
metadata: {{name: greeter, namespace: shop}}
spec: {{selector: {{app: greeter}}, ports: [{{port: 7000, {more}}}]}}
"""


@pytest.mark.root
@pytest.mark.usefixtures("run_base")
@pytest.mark.parametrize("version", [4, 6])
async def test_a_connection_delayed_by_detection_is_reported_until_the_protocol_is_declared(version):
    outside = CALLER.replace("name: caller,", "name: outside,").replace(
        "labels:", "annotations: {sidecar.istio.io/inject: 'false'}, labels:"
    )
    async with mesh(GREETER, CALLER, greeter_service(), outside) as rig:
        await rig.until_ready("caller-0", "greeter-0", "outside-0")

        async def greet(caller: str = "caller") -> bytes:
            family = socket.AF_INET6 if version == 6 else socket.AF_INET
            connection = namespace.socket_in(rig.pod(caller).namespace, family)
            address = rig.address("greeter", version)
            await asyncio.get_running_loop().sock_connect(connection, (address, 7000))
            reader, writer = await asyncio.open_connection(sock=connection)
            try:
                async with asyncio.timeout(30):
                    return await reader.readexactly(5)
            finally:
                writer.close()

        async def late() -> list[str]:
            await rig.engine.observer.scrape()
            return [str(problem) for problem in rig.engine.status().problems if "first bytes" in problem.what]

        assert await greet() == b"hello"
        # The greeter's proxy got the connection with mutual TLS, whose ALPN names the protocol, so it did not wait.
        (from_caller,) = await late()
        assert "Workload shop/caller: warning: connections to greeter.shop:7000 were delayed" in from_caller
        assert await greet("outside") == b"hello"
        into_greeter = next(each for each in await late() if "connections to an inbound port" in each)
        assert "Workload shop/greeter: warning: connections to an inbound port" in into_greeter
        assert "(undeclared: 7000)" in into_greeter

        push = rig.engine.status().push
        rig.write("2.yaml", greeter_service("appProtocol: tcp"))
        await rig.until(lambda status: status.push > push)
        await rig.engine.settled()
        assert await late() == []
        assert await greet() == b"hello"
        assert await late() == []
