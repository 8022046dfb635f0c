"""An HTTP port that untrusted clients can reach."""

import asyncio
import contextlib
import socket
import ssl

import aiohttp
import pytest
from aiohttp import web

from authority import Authority
from eventually import eventually
from weft.base import http_site
from weft.base.http_site import HttpSite


async def answer(_request):
    return web.Response(text="hello\n")


@contextlib.asynccontextmanager
async def serving(tls=None):
    app = web.Application()
    app.router.add_get("/", answer)
    site = HttpSite(app, tls=tls)
    port = await site.listen("127.0.0.1", 0)
    try:
        yield port
    finally:
        await site.close()


async def get(port):
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/") as found:
        return await found.text()


async def ends(reader):
    """Return whether the server closes the connection without sending anything."""
    async with asyncio.timeout(30):
        try:
            return await reader.read() == b""
        except ConnectionError:
            return True


async def test_serves_on_every_address_when_none_is_given():
    app = web.Application()
    app.router.add_get("/", answer)
    site = HttpSite(app)
    port = await site.listen(None, 0)
    try:
        assert await get(port) == "hello\n"
        if socket.has_dualstack_ipv6():
            reader, writer = await asyncio.open_connection("::1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).endswith(b"hello\n")
            writer.close()
        with pytest.raises(OSError, match="in use"):
            await HttpSite(web.Application()).listen(None, port)
    finally:
        await site.close()
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_client_that_does_not_finish_its_request_is_disconnected(monkeypatch):
    monkeypatch.setattr(http_site, "IDLE_SECONDS", 2.0)
    async with serving() as port:
        silent, first = await asyncio.open_connection("127.0.0.1", port)
        slow, second = await asyncio.open_connection("127.0.0.1", port)

        async def drip():
            with contextlib.suppress(ConnectionError):
                second.write(b"GET / HTTP/1.1\r\n")
                for number in range(1_000):
                    second.write(f"X-{number}: y\r\n".encode())
                    await second.drain()
                    await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        assert await ends(silent) and await ends(slow)
        await dripping
        assert await get(port) == "hello\n"
        first.close()
        second.close()


async def test_one_host_can_hold_half_of_the_connections_and_gets_them_back(monkeypatch):
    monkeypatch.setattr(http_site, "MOST_OF_ONE_HOST", 2)
    async with serving() as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _, writer in held:
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        for reader, _ in held:
            await reader.readuntil(b"hello\n")
        more, refused = await asyncio.open_connection("127.0.0.1", port)
        assert await ends(more)
        other, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await other.read()).endswith(b"hello\n")
        for each in (refused, writer, *(writer for _, writer in held)):
            each.close()
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    assert await get(port) == "hello\n"
                    break


async def test_all_hosts_together_have_their_limit_too(monkeypatch):
    monkeypatch.setattr(http_site, "MOST_CONNECTIONS", 2)
    async with serving() as port:
        held = [
            await asyncio.open_connection("127.0.0.1", port, local_addr=(f"127.0.0.{number}", 0)) for number in (2, 3)
        ]
        more, refused = await asyncio.open_connection("127.0.0.1", port)
        assert await ends(more)
        for each in (refused, *(writer for _, writer in held)):
            each.close()


async def test_a_full_port_accepts_a_new_host_and_closes_the_idlest_connection_of_the_busiest_host(monkeypatch):
    monkeypatch.setattr(http_site, "MOST_CONNECTIONS", 3)
    async with serving() as port:
        greedy = [await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0)) for _ in range(3)]
        for reader, writer in greedy:
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"hello\n")
        newcomer, asking = await asyncio.open_connection("127.0.0.1", port)
        asking.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await newcomer.read()).endswith(b"hello\n")
        assert await ends(greedy[0][0])
        greedy[1][1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await greedy[1][0].readuntil(b"hello\n")
        for each in (asking, *(writer for _, writer in greedy)):
            each.close()


async def test_a_client_that_never_completes_its_handshake_is_counted_and_disconnected(monkeypatch, tmp_path):
    monkeypatch.setattr(http_site, "HANDSHAKE_SECONDS", 3.0)
    monkeypatch.setattr(http_site, "MOST_OF_ONE_HOST", 1)
    issued = Authority().issue("spiffe://cluster.local/ns/a/sa/b")
    (tmp_path / "both.pem").write_bytes(issued.key + issued.certificate)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "both.pem")
    async with serving(tls) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        more, refused = await asyncio.open_connection("127.0.0.1", port)
        assert await ends(more)
        assert await ends(reader)
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        async with (
            asyncio.timeout(30),
            aiohttp.ClientSession() as session,
            session.get(f"https://127.0.0.1:{port}/", ssl=trusting) as found,
        ):
            assert await found.text() == "hello\n"
        writer.close()
        refused.close()


async def test_a_server_that_shuts_down_still_responds_and_closes_the_connection():
    app = web.Application()
    app.router.add_get("/", answer)
    site = HttpSite(app)
    port = await site.listen("127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for leaving in (False, True):
            if leaving:
                site.leave()
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200") and await reader.readexactly(6) == b"hello\n"
            assert (b"connection: close" in head.lower()) is leaving
        assert await ends(reader)
        writer.close()
        assert await get(port) == "hello\n"
    finally:
        await site.close()


async def test_clients_that_do_not_read_cannot_exceed_the_limit(monkeypatch):
    monkeypatch.setattr(http_site, "MOST_CONNECTIONS", 4)
    responses = 0

    async def large(_request):
        nonlocal responses
        responses += 1
        return web.Response(body=bytes(32 << 20))

    app = web.Application()
    app.router.add_get("/", large)
    site = HttpSite(app)
    port = await site.listen("127.0.0.1", 0)
    clients = []
    try:
        for number in range(1, 13):
            _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0), limit=1)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            clients.append(writer)
            await eventually(lambda number=number: responses == number)
        await eventually(lambda: len(site._runner.server.connections) <= 4)
    finally:
        for writer in clients:
            writer.transport.abort()
        await site.close()
