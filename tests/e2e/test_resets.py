"""Callers that reset requests, or give up on them, beside callers that wait: only the former may lose requests.

All requests of a proxy to a workload share one HTTP/2 connection, at gateways and between sidecars. `make test-resets`
runs these tests with ten thousand requests each.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter

import pytest
from tools.ports import free_port

from e2e.objects import http_service, istio, text, workload
from eventually import eventually
from translate.raw_http2 import resets_by_http2
from weft.netns.namespace import socket_in

pytestmark = pytest.mark.asyncio(loop_scope="module")

REQUESTS = int(os.environ.get("WEFT_RESET_REQUESTS", "600"))
RESETS = 2500  # at least; by default Envoy accepts 1,000 at once on a connection
RESET = "downstream_rq_rx_reset"
PORT = free_port()
PATIENT, IMPATIENT, HOSTILE = 32, 32, 8  # callers at a time


def files(control):
    edge = {
        "apiVersion": "weft.dev/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "edge", "namespace": "shop", "labels": {"app": "edge", "istio": "ingress"}},
        "spec": {"gateway": {"publish": [{"port": 80, "hostPort": PORT}]}},
    }
    servers = [{"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["*"]}]
    to_app = {"hosts": ["*"], "gateways": ["edge"], "http": [{"route": [{"destination": {"host": "app"}}]}]}
    without_tls = {"selector": {"matchLabels": {"app": "open"}}, "mtls": {"mode": "DISABLE"}}
    return {
        "app.yaml": text(workload("app", control=control, serve="http=8080"), http_service("app")),
        "open.yaml": text(
            workload("open", control=control, serve="http=8080"),
            http_service("open"),
            istio("PeerAuthentication", "open", without_tls) | {"apiVersion": "security.istio.io/v1"},
        ),
        "caller.yaml": text(workload("caller", control=control)),
        "edge.yaml": text(
            edge,
            istio("Gateway", "edge", {"selector": {"istio": "ingress"}, "servers": servers}),
            istio("VirtualService", "outside", to_app),
        ),
    }


def connector(mesh, place):
    """A function that opens connections: to `app` through the gateway or through the sidecar of `caller`, or to `open`
    through that sidecar."""
    loop = asyncio.get_running_loop()
    pod = next(each for each in mesh.engine.pods() if each.plan.workload.name == "caller")
    addresses = {service.name: service.addresses[0] for service in mesh.control.mesh.services() if service.addresses}

    async def connect():
        connection = socket.socket() if place == "gateway" else socket_in(pod.namespace)
        connection.setblocking(False)
        address = ("127.0.0.1", PORT) if place == "gateway" else (addresses[called(place)], 80)
        await loop.sock_connect(connection, address)
        return connection

    return connect


def called(place):
    return "open" if place == "plaintext" else "app"


async def patient(connect, host, left, outcomes):
    """Send requests one after the other and wait for each response. POST: no proxy repeats them after a reset."""
    request = f"POST /patient HTTP/1.1\r\nhost: {host}\r\ncontent-length: 1\r\n\r\nx".encode()
    reader, writer = await asyncio.open_connection(sock=await connect())
    for _ in left:
        writer.write(request)
        try:
            async with asyncio.timeout(60):
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0]))
            outcomes[head.split(b" ", 2)[1].decode()] += 1
        except (OSError, EOFError, ValueError) as error:
            outcomes[type(error).__name__] += 1
            writer.close()
            reader, writer = await asyncio.open_connection(sock=await connect())
    writer.close()


async def impatient(connect, host, done):
    """Send requests that take long, and give up on each after a moment."""
    while not done.is_set():
        with contextlib.suppress(OSError), contextlib.closing(await connect()) as connection:
            connection.send(f"GET /slow HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
            await asyncio.sleep(0.05)


async def hostile(connect, host, done):
    """Send requests over HTTP/2 and reset them; connect again if the proxy closes the connection."""
    while not done.is_set():
        with contextlib.suppress(OSError):
            await resets_by_http2(await connect(), done, path="/slow", authority=host)


@pytest.mark.parametrize("place", ["gateway", "sidecar", "plaintext"])
@pytest.mark.parametrize(("attack", "number"), [(impatient, IMPATIENT), (hostile, HOSTILE)])
async def test_resets_of_some_callers_end_no_request_of_others(mesh, place, attack, number):
    connect, host = connector(mesh, place), called(place)
    await mesh.tell(host, "script", path="/slow", forever={"delay": 5})
    await mesh.tell(host, "script", path="/patient", forever={"delay": 0.02})
    await eventually(lambda: answered(connect, host))
    outcomes, done, before = Counter(), asyncio.Event(), await resets(mesh, host)
    attackers = [asyncio.create_task(attack(connect, host, done)) for _ in range(number)]
    left = iter(range(REQUESTS))
    try:
        while True:
            await asyncio.gather(*(patient(connect, host, left, outcomes) for _ in range(PATIENT)))
            if await resets(mesh, host) - before >= RESETS:
                break
            left = iter(range(PATIENT))
    finally:
        done.set()
        await asyncio.gather(*attackers)
    assert outcomes == {"200": sum(outcomes.values())}


async def test_an_application_may_give_up_on_a_thousand_requests_of_one_connection(mesh):
    connect, done, rounds, burst = connector(mesh, "sidecar"), asyncio.Event(), 20, 50
    await mesh.tell("app", "script", path="/slow", forever={"delay": 5})
    before = await mesh.stat("caller", RESET)
    attack = resets_by_http2(await connect(), done, path="/slow", authority="app", burst=burst, rounds=rounds)
    task = asyncio.create_task(attack)

    async def all_read():
        return task.done() or await mesh.stat("caller", RESET) - before >= 2 * burst * rounds

    await eventually(all_read)
    done.set()
    assert not await task, "the proxy closed the connection"


async def answered(connect, host):
    outcomes = Counter()
    with contextlib.suppress(OSError):
        await patient(connect, host, iter(range(1)), outcomes)
    return outcomes == {"200": 1}


async def resets(mesh, workload):
    """How many resets the workload's proxy has received from other proxies."""
    return await mesh.stat(workload, f"inbound.*{RESET}")
