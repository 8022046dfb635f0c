"""A node's end of the wire is played here, for what a real one does only when something breaks; the real one is asked
in tests/on_cluster/test_proxy_config.py. Refusals are a real API server's."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web

from kube.following import connected
from weft.kube import port_forward
from weft.kube.client import Client
from weft.kube.config import ApiConnection
from weft.kube.error import ApiError, ApiUnavailable, KubeError
from weft.kube.port_forward import PROTOCOL, ask

PORT = (15000).to_bytes(2, "little")
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@asynccontextmanager
async def node(talk, protocols=(PROTOCOL,)):
    """A server that upgrades to WebSocket and has `talk` speak on it; yields a client of it and what was asked."""
    asked = []

    async def serve(request):
        asked.append((request.path, dict(request.query)))
        assert request.headers.getall("Accept") == ["*/*"]  # a kubelet refuses who wants JSON
        opened = web.WebSocketResponse(protocols=protocols)
        await opened.prepare(request)
        await talk(opened)
        return opened

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/{namespace}/pods/{pod}/portforward", serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with Client(ApiConnection(server=f"http://127.0.0.1:{runner.addresses[0][1]}"), timeout=5) as client:
            yield client, asked
    finally:
        await runner.cleanup()


async def open_channels(opened):
    await opened.send_bytes(b"\x00" + PORT)
    await opened.send_bytes(b"\x01" + PORT)


async def test_a_request_reaches_the_pod_and_returns_its_response():
    requests = []

    async def talk(opened):
        await open_channels(opened)
        while not b"".join(requests).endswith(b"more"):
            requests.append(await opened.receive_bytes())
        for piece in (ANSWER[:10], ANSWER[10:]):
            await opened.send_bytes(b"\x00" + piece)

    async with node(talk) as (client, asked):
        answer = await ask(
            client,
            "shop",
            "web-0",
            15000,
            "/logging",
            query={"rbac": "debug"},
            method="POST",
            headers={"X": "1"},
            body=b"more",
        )
    assert (answer.status, answer.body) == (200, b"hello")
    assert asked == [("/api/v1/namespaces/shop/pods/web-0/portforward", {"ports": "15000"})]
    assert requests[0].startswith(b"\x00POST /logging?rbac=debug HTTP/1.1\r\n") and b"\r\nX: 1\r\n" in requests[0]
    assert b"".join(requests).replace(b"\x00", b"").endswith(b"\r\n\r\nmore")


async def test_a_large_response_is_complete_by_its_length_though_the_connection_stays_open():
    body = b"x" * 3_000_000
    ended = asyncio.Event()

    async def talk(opened):
        await open_channels(opened)
        await opened.receive_bytes()
        await opened.send_bytes(b"\x00HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        for start in range(0, len(body), 32768):
            await opened.send_bytes(b"\x00" + body[start : start + 32768])
        async for _ in opened:  # the connection stays open until the client goes
            pass
        ended.set()

    async with node(talk) as (client, _):
        async with asyncio.timeout(30):
            assert (await ask(client, "shop", "web-0", 15000, "/config_dump")).body == body
            await ended.wait()


async def test_the_error_of_the_node_is_in_the_exception():
    async def talk(opened):
        await open_channels(opened)
        await opened.receive_bytes()
        await opened.send_bytes(b"\x01connection refused by port 15000")

    async with node(talk) as (client, _):
        with pytest.raises(ApiUnavailable, match="connection refused by port 15000") as told:
            await ask(client, "shop", "web-0", 15000, "/ready")
    assert "port 15000 of pod web-0.shop" in str(told.value) and "kubectl describe pod web-0" in told.value.problem.hint


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhel", b"nonsense\r\n\r\n"])
async def test_a_connection_that_ends_early_raises_an_error(before):
    async def talk(opened):
        await open_channels(opened)
        await opened.receive_bytes()
        if before:
            await opened.send_bytes(b"\x00" + before)
        await opened.send_str("not for us")
        await opened.close()

    async with node(talk) as (client, _):
        with pytest.raises(ApiUnavailable, match="no answer"):
            await ask(client, "shop", "web-0", 15000, "/ready")


async def test_a_response_over_the_maximum_size_raises_an_error(monkeypatch):
    monkeypatch.setattr(port_forward, "_LONGEST_ANSWER", 4)

    async def talk(opened):
        await open_channels(opened)
        await opened.receive_bytes()
        await opened.send_bytes(b"\x00" + ANSWER)

    async with node(talk) as (client, _):
        with pytest.raises(KubeError, match="over 4 bytes"):
            await ask(client, "shop", "web-0", 15000, "/ready")


async def test_a_request_to_a_silent_pod_times_out(monkeypatch):
    monkeypatch.setattr(port_forward, "TIMEOUT", 0.1)

    async def talk(opened):
        await open_channels(opened)
        async for _ in opened:
            pass

    async with node(talk) as (client, _):
        with pytest.raises(ApiUnavailable, match="timed out"):
            await ask(client, "shop", "web-0", 15000, "/ready")


async def test_a_server_with_another_subprotocol_raises_an_error():
    async def talk(opened):
        async for _ in opened:
            pass

    async with node(talk, protocols=()) as (client, _):
        with pytest.raises(ApiUnavailable, match=f"does not support {PROTOCOL}"):
            await ask(client, "shop", "web-0", 15000, "/ready")


async def test_a_missing_pod_raises_the_servers_not_found_error(api_server):
    namespace = api_server.make_namespace("forward-none")
    async with connected(api_server) as client:
        with pytest.raises(ApiError) as refused:
            await ask(client, namespace, "nobody", 15000, "/ready")
    assert refused.value.not_found and 'pods "nobody" not found' in refused.value.message


async def test_a_forbidden_port_forward_raises_the_servers_error(api_server):
    namespace = api_server.make_namespace("forward-rights")
    api_server.make_default_account(namespace)
    async with connected(api_server) as client:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
        body = b'{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}'
        token = msgspec.json.decode(await client.raw("POST", path, body=body))["status"]["token"]
        known = client.connection
    async with Client(
        ApiConnection(server=known.server, ca_data=known.ca_data, ca_file=known.ca_file, token=token)
    ) as nobody:
        with pytest.raises(ApiError) as refused:
            await ask(nobody, namespace, "web-0", 15000, "/ready")
    assert refused.value.forbidden and "pods/portforward" in refused.value.message
