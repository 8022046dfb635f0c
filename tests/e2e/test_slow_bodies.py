"""Callers outside the mesh that send the body of a request one byte at a time, through a real gateway. A byte now and
then keeps a stream from being idle; the limit for the whole request ends these requests, and no other ones."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tools.ports import free_port

from eventually import eventually
from gateway_rig import all_http, entry, gateway
from translate.raw_http2 import trickle_by_http2

SLOW = 100  # callers that send slowly
PAUSE = 0.1  # seconds between two bytes


class App:
    """An HTTP/1.1 server that counts the requests whose body has not yet ended. It responds to `/echo` and to upgrades
    at once and then echoes what it receives; to other requests it responds after their body."""

    def __init__(self):
        self.received = self.receiving = 0

    async def serve(self, reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.received += 1
                self.receiving += 1
                try:
                    await self._respond(head, reader, writer)
                finally:
                    self.receiving -= 1
        writer.close()

    async def _respond(self, head, reader, writer):
        if b"upgrade: " in head.lower():
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
            while piece := await reader.read(1000):
                writer.write(piece)
            return
        echoes = head.startswith(b"POST /echo")
        if echoes:
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        received = 0
        async for piece in _chunks(reader):
            received += len(piece)
            if echoes:
                writer.write(_chunk(piece))
        body = str(received).encode()
        writer.write(_chunk(b"") if echoes else b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))


async def _chunks(reader):
    while size := int(await reader.readline(), 16):
        yield await reader.readexactly(size)
        await reader.readline()
    await reader.readline()


def _chunk(piece):
    return b"%x\r\n%s\r\n" % (len(piece), piece)


@contextlib.asynccontextmanager
async def edge(limit):
    """A gateway with this limit in front of an application; yields its port and the application."""
    port, app = free_port(), App()
    settings = f"""---
apiVersion: v1
kind: ConfigMap
metadata: {{name: istio, namespace: istio-system, annotations: {{weft.dev/request-timeout: {limit}}}}}
data: {{mesh: "{{}}"}}
"""
    server = await asyncio.start_server(app.serve, "127.0.0.1", 0)
    async with server:
        text = all_http(port, "{host: web}") + entry("web", server.sockets[0].getsockname()[1]) + settings
        async with gateway(text, listening=(port,)):
            yield port, app


def request(path, *lines):
    return "\r\n".join([f"POST {path} HTTP/1.1", "host: shop.example", *lines, "", ""]).encode()


CHUNKED = "transfer-encoding: chunked"


async def trickle(port):
    """Send a body one byte at a time until the response begins; its status. 0 if there is none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request("/upload", CHUNKED))
    head = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
    try:
        async with asyncio.timeout(60):
            while not head.done():
                writer.write(_chunk(b"x"))
                await asyncio.wait({head}, timeout=PAUSE)
        return int((await head).split(b" ", 2)[1])
    except (ConnectionError, asyncio.IncompleteReadError):
        return 0
    finally:
        head.cancel()
        writer.close()


async def opened(port, head, status):
    """A connection on which a response with this status has begun."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 %d" % status)
    return reader, writer


async def test_requests_whose_body_arrives_slowly_are_ended_and_leave_nothing_behind():
    async with edge("3s") as (port, app):
        slow = [asyncio.create_task(trickle(port)) for _ in range(SLOW)]
        by_http2 = asyncio.create_task(trickle_by_http2("127.0.0.1", port, path="/upload", pause=PAUSE))
        assert set(await asyncio.gather(*slow)) == {408}
        assert await by_http2 == 408
        assert app.received
        await eventually(lambda: app.receiving, lambda count: count == 0)


async def test_streams_in_both_directions_and_upgrades_outlast_the_limit():
    """They begin before a slow caller, which is ended by the limit."""
    async with edge("3s") as (port, _):
        reader, writer = await opened(port, request("/echo", CHUNKED), 200)
        upgrade = request("/", "connection: upgrade", "upgrade: websocket").replace(b"POST", b"GET")
        upgraded, upgraded_writer = await opened(port, upgrade, 101)
        assert await trickle(port) == 408
        writer.write(_chunk(b"still here"))
        assert await reader.readuntil(b"still here")
        writer.write(_chunk(b""))
        assert (await reader.readuntil(b"0\r\n\r\n")).endswith(b"0\r\n\r\n")
        upgraded_writer.write(b"here, too")
        assert await upgraded.readexactly(9) == b"here, too"


@pytest.mark.parametrize("limit", ["0s", "10m"])
async def test_slow_uploads_end_normally_without_a_limit_or_within_it(limit):
    async with edge(limit) as (port, _), edge("1s") as (strict, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request("/upload", CHUNKED) + _chunk(b"x"))
        assert await trickle(strict) == 408
        writer.write(_chunk(b"x") + _chunk(b""))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert await reader.readexactly(1) == b"2"
