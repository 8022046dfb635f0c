"""Calls through the caller's and the server's proxy, as the applications on both ends see them."""

import asyncio
import time
from datetime import timedelta

from translate.live import HOST, app, pair
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.model.virtual_service import (
    Abort,
    Destination,
    Fault,
    HttpMatch,
    HttpRoute,
    MatchKind,
    StringMatch,
    VirtualService,
    WeightedDestination,
)
from weft.translate.chains import bytes_to, chain

_TO_ORDERS = (WeightedDestination(Destination(HOST)),)


async def _ask(port, path="/", headers="", first_line=None):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"{first_line or f'GET {path} HTTP/1.1'}\r\nHost: orders\r\nConnection: close\r\n{headers}\r\n".encode()
    )
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return answer.decode()


def _answering(seen):
    async def handle(reader, writer):
        seen.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\nServer: the-app\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
        await writer.drain()
        writer.close()

    return handle


async def test_the_app_sees_http1_and_keeps_its_server_header():
    seen = []
    async with app(_answering(seen)) as app_port, pair(app_port) as port:
        answer = await _ask(port, "/a/../b")
    assert answer.startswith("HTTP/1.1 200") and "server: the-app" in answer and answer.endswith("hi")
    assert seen[0].startswith("GET /b HTTP/1.1") and "x-envoy-attempt-count: 1" in seen[0]


async def test_http_1_0_is_http_too():
    async with app(_answering([])) as app_port, pair(app_port) as port:
        assert " 200 OK" in await _ask(port, first_line="GET / HTTP/1.0")


async def test_a_websocket_crosses_both_proxies():
    async def echo(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert "upgrade: websocket" in head
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        writer.write(await reader.readexactly(4))
        await writer.drain()
        writer.close()

    async with app(echo) as app_port, pair(app_port) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /chat HTTP/1.1\r\nHost: orders\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        assert head.startswith(b"HTTP/1.1 101")
        writer.write(b"ping")
        assert await asyncio.wait_for(reader.readexactly(4), 30) == b"ping"
        writer.close()


async def test_a_fault_is_enabled_only_for_its_route():
    routing = VirtualService(
        "orders",
        "shop",
        (HOST,),
        http=(
            HttpRoute(
                match=(HttpMatch(uri=StringMatch(MatchKind.PREFIX, "/broken")),),
                route=_TO_ORDERS,
                fault=Fault(abort=Abort(http_status=418, percentage=100)),
            ),
            HttpRoute(route=_TO_ORDERS),
        ),
    )
    async with app(_answering([])) as app_port, pair(app_port, routing) as port:
        assert (await _ask(port, "/broken")).startswith("HTTP/1.1 418")
        assert (await _ask(port, "/fine")).startswith("HTTP/1.1 200")


async def test_a_server_first_protocol_on_an_undeclared_port_is_delayed_but_works():
    async def greet(reader, writer):
        writer.write(b"greetings\n")
        await writer.drain()

    wait = timedelta(milliseconds=200)
    settings = Settings(detection_timeout=wait)
    async with app(greet) as app_port, pair(app_port, protocol=Protocol.UNDECLARED, settings=settings) as port:
        started = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(reader.readline(), 30) == b"greetings\n"
        assert time.monotonic() - started >= wait.total_seconds() / 2  # Envoy's timers are not exact
        writer.close()


async def test_a_client_that_connects_early_and_sends_late_is_still_http():
    """Connection pools do so. Forwarded as TCP, such a connection would have neither routes nor mutual TLS."""
    seen = []
    settings = Settings(detection_timeout=timedelta(milliseconds=50))
    async with app(_answering(seen)) as app_port, pair(app_port, settings=settings) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.5)  # ten times the detection timeout of undeclared ports
        writer.write(b"GET / HTTP/1.1\r\nhost: orders\r\nconnection: close\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), 30)).startswith(b"HTTP/1.1 200")
        writer.close()
    assert "x-envoy-attempt-count: 1" in seen[0]  # proxies have read it


async def test_a_server_first_protocol_on_a_declared_port_is_not_delayed():
    async def greet(reader, writer):
        writer.write(b"greetings\n")
        await writer.drain()

    settings = Settings(detection_timeout=timedelta(hours=1))
    async with app(greet) as app_port, pair(app_port, protocol=Protocol.MYSQL, settings=settings) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(reader.readline(), 30) == b"greetings\n"
        writer.close()


def test_names_its_chain_and_statistics():
    end = bytes_to((("one", 1), ("two", 3)), Settings())
    assert chain("ledger", end).name == "ledger"
    assert b"one" in end.typed_config.value and b"two" in end.typed_config.value
