from __future__ import annotations

import asyncio
import socket
import ssl
from datetime import timedelta

import grpc
import pytest

from ca import making
from eventually import eventually
from weft.ca.authority import Authority
from weft.ca.error import AuthorityError
from weft.ca.serving import ServingCertificate


@pytest.fixture
async def listening():
    """A server with the certificate; returns the port."""
    opened = []

    async def listen(serving):
        server = grpc.aio.server()
        port = server.add_secure_port("127.0.0.1:0", serving.credentials())
        await server.start()
        opened.append((server, asyncio.create_task(serving.run())))
        return port

    yield listen
    for server, task in opened:
        task.cancel()
        await server.stop(None)


def shown(port: int, roots: tuple[str, ...]) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata="".join(roots))
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as connection,
    ):
        return connection.getpeercert(binary_form=True)


async def until(condition):
    await eventually(lambda: asyncio.to_thread(condition))


async def test_is_renewed_before_it_ends_on_the_same_listener(listening):
    authority = Authority.in_memory(making.DOMAIN)
    port = await listening(ServingCertificate(authority, lifetime=timedelta(seconds=2)))
    first = await asyncio.to_thread(shown, port, authority.bundle())
    await until(lambda: shown(port, authority.bundle()) != first)


async def test_follows_the_root_that_signs(listening):
    authority = Authority.in_memory(making.DOMAIN)
    port = await listening(ServingCertificate(authority))
    await asyncio.sleep(0)
    authority.rotate()
    old, new = authority.bundle()
    assert await asyncio.to_thread(shown, port, (old,))
    authority.switch()

    def trusted_by_the_new_root():
        try:
            return bool(shown(port, (new,)))
        except ssl.SSLCertVerificationError:
            return False

    await until(trusted_by_the_new_root)


async def test_goes_on_with_what_it_has_when_it_cannot_be_renewed(listening, monkeypatch):
    authority = Authority.in_memory(making.DOMAIN)
    port = await listening(ServingCertificate(authority))
    await asyncio.sleep(0)
    before = await asyncio.to_thread(shown, port, authority.bundle())
    tried = asyncio.Event()

    def cannot(*_):
        tried.set()
        raise AuthorityError("expired")

    monkeypatch.setattr(authority, "sign_server", cannot)
    authority.rotate()
    await tried.wait()
    assert await asyncio.to_thread(shown, port, authority.bundle()) == before
