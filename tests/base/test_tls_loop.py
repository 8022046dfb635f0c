"""TLS clients on weft's own event loop."""

import asyncio
import gc
import ssl
from asyncio.sslproto import SSLProtocol

import aiohttp
import pytest
from aiohttp import web

from authority import Authority
from weft.base.http_site import HttpSite
from weft.base.tls_loop import TlsEventLoop

LARGE = bytes(range(256)) * 20_000


def run(work):
    with asyncio.Runner(loop_factory=TlsEventLoop) as runner:
        return runner.run(asyncio.wait_for(work, 60))


@pytest.fixture
def credentials(tmp_path):
    authority = Authority()
    issued = authority.issue("localhost")
    file = tmp_path / "both.pem"
    file.write_bytes(issued.key + issued.certificate)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cadata=authority.root.decode()), ssl.create_default_context()


async def serve(tls):
    async def answer(request):
        return web.Response(body=await request.read())

    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/", answer)
    site = HttpSite(app, tls=tls)
    return site, await site.listen("127.0.0.1", 0)


def test_a_client_of_aiohttp_talks_tls_without_asyncios_own(credentials):
    tls, trusting, _ = credentials

    async def work():
        site, port = await serve(tls)
        async with aiohttp.ClientSession() as session:
            for _ in range(2):  # the second on the same connection
                async with session.post(f"https://localhost:{port}/", data=LARGE, ssl=trusting) as answer:
                    assert await answer.read() == LARGE
            assert not [each for each in gc.get_objects() if type(each) is SSLProtocol]
        await site.close()

    run(work())


def test_a_server_that_is_not_trusted_or_has_another_name_is_refused(credentials):
    tls, trusting, strange = credentials

    async def work():
        site, port = await serve(tls)
        async with aiohttp.ClientSession() as session:
            for context, host in ((strange, "localhost"), (trusting, "127.0.0.1")):
                with pytest.raises(aiohttp.ClientConnectorCertificateError):
                    await session.post(f"https://{host}:{port}/", data=b"", ssl=context)
        await site.close()

    run(work())


def test_streams_with_and_without_tls_work_as_always(credentials):
    tls, trusting, _ = credentials

    async def work():
        site, port = await serve(tls)
        reader, writer = await asyncio.open_connection("localhost", port, ssl=trusting)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
        assert (await reader.read()).endswith(b"hi")
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"no TLS at all\r\n\r\n")
        await reader.read()
        writer.close()
        await site.close()

    run(work())
